"""Real data by name: from a local folder if it has the data, otherwise from OpenML."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

# OpenML's name and version of each data set; other data sets are only read from $MANYLENS_DATA.
OPENML = {
    "mnist": ("mnist_784", 1),
    "usps": ("USPS", 2),
    "balance": ("balance-scale", 1),
    **{key: (key, 1) for key in ("letter", "optdigits", "isolet", "yeast", "ecoli", "glass", "ionosphere")},
    "reg_abalone": ("abalone", 1),
    "reg_cal_housing": ("california_housing", 1),
    "reg_kin8nm": ("kin8nm", 1),
}


def local_path(name: str) -> Path | None:
    """The file of a data set in $MANYLENS_DATA, if it exists."""
    folder = os.environ.get("MANYLENS_DATA")
    if not folder:
        return None
    path = Path(folder) / f"{name}.npz"
    return path if os.path.exists(path) else None


def data_available(*names: str) -> bool:
    """Whether all these data sets are in $MANYLENS_DATA, so that loading them needs no network.

    Parameters
    ----------
    *names : str
        Names of data sets.

    Returns
    -------
    bool
        Whether all of them are there.
    """
    return all(local_path(name) is not None for name in names)


def load_dataset(name: str) -> Bunch:
    """Load a data set as flat rows, from the folder $MANYLENS_DATA or else from OpenML.

    Parameters
    ----------
    name : str
        Name of the data set, such as "mnist", "letter" or "reg_kin8nm".

    Returns
    -------
    sklearn.utils.Bunch
        `X` of shape (n, d); `y` of shape (n,); `n_train`: the first `n_train` rows are the training set (all
        rows if the data set has no fixed split); `image_shape`, None unless the rows are images; and
        everything else in the file.
    """
    if not isinstance(name, str):
        raise TypeError(f"name={name!r} must be the name of a data set, such as 'mnist'.")
    path = local_path(name)
    if path is not None:
        with np.load(path, allow_pickle=False) as file:
            content = {key: file[key] for key in file.files}
    elif name in OPENML:
        openml_name, version = OPENML[name]
        try:
            fetched = fetch_openml(openml_name, version=version, as_frame=False)
        except OSError as error:  # includes all network errors
            raise OSError(
                f"{name!r} is not in $MANYLENS_DATA and could not be fetched from OpenML: {error}"
            ) from None
        content = {"X": np.asarray(fetched.data, dtype=np.float64), "y": fetched.target}
    else:
        raise ValueError(
            f"{name!r:.99} is neither in $MANYLENS_DATA nor a data set that can be fetched. Give one of "
            f"{', '.join(sorted(OPENML))}, or put a file of that name (.npz) into that folder."
        )
    X = content.pop("X")
    image_shape = X.shape[1:] if X.ndim > 2 else None
    n_train = int(content.pop("n_train", len(X)))
    return Bunch(X=X.reshape(len(X), -1), n_train=n_train, image_shape=image_shape, **content)
