"""Real data by name: from a local folder where there is one, else from OpenML."""

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

# Public names of the sets that OpenML has; the others are read from $MANYLENS_DATA only.
OPENML = {
    "mnist": ("mnist_784", 1),
    "usps": ("USPS", 2),
    "letter": ("letter", 1),
    "optdigits": ("optdigits", 1),
    "isolet": ("isolet", 1),
    "yeast": ("yeast", 1),
    "ecoli": ("ecoli", 1),
    "balance": ("balance-scale", 1),
    "glass": ("glass", 1),
    "ionosphere": ("ionosphere", 1),
    "reg_abalone": ("abalone", 1),
    "reg_cal_housing": ("california_housing", 1),
    "reg_kin8nm": ("kin8nm", 1),
}


def local_path(name):
    """Path of the data set `name` under $MANYLENS_DATA, or None where it is not there.

    Parameters
    ----------
    name : str
        Name of the data set.

    Returns
    -------
    pathlib.Path or None
        The file, if it exists.
    """
    folder = os.environ.get("MANYLENS_DATA")
    if not folder:
        return None
    path = Path(folder) / f"{name}.npz"
    return path if path.exists() else None


def data_available(*names):
    """Whether every data set named is on this machine, so that loading it needs no network.

    Parameters
    ----------
    *names : str
        Names of data sets.

    Returns
    -------
    bool
        True where all of them are under $MANYLENS_DATA.
    """
    return all(local_path(name) is not None for name in names)


def load_dataset(name):
    """Load a data set as flat rows.

    Looks in the folder that the environment variable MANYLENS_DATA names; otherwise fetches the set from
    OpenML by its public name.

    Parameters
    ----------
    name : str
        Name of the data set, such as "mnist", "letter" or "reg_kin8nm".

    Returns
    -------
    sklearn.utils.Bunch
        `X` of shape (n, d); `y` of shape (n,); `n_train`, the number of leading rows that are the training
        part (n where the set has no fixed split); `image_shape` for images, else None; and whatever else
        the file holds.
    """
    path = local_path(name)
    if path is not None:
        with np.load(path, allow_pickle=False) as file:
            content = {key: file[key] for key in file.files}
    elif name in OPENML:
        public_name, version = OPENML[name]
        try:
            fetched = fetch_openml(public_name, version=version, as_frame=False)
        except OSError as error:  # of which every fault of the network is one
            raise OSError(
                f"{name!r} is not in $MANYLENS_DATA and could not be fetched from OpenML: {error}"
            ) from None
        content = {"X": np.asarray(fetched.data, dtype=np.float64), "y": fetched.target}
    else:
        raise ValueError(
            f"{name!r} is not in $MANYLENS_DATA and has no public name known here. Known names: "
            f"{', '.join(sorted(OPENML))}."
        )
    X = content.pop("X")
    image_shape = X.shape[1:] if X.ndim > 2 else None
    n_train = int(content.pop("n_train", len(X)))
    return Bunch(X=X.reshape(len(X), -1), n_train=n_train, image_shape=image_shape, **content)
