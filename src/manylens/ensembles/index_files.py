"""A search index on disk: arrays as .npy, the rest as JSON, the modules by skops. Nothing is executed."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from manylens.ensembles.composite import CompositeAxes
from manylens.ensembles.faiss_lists import FaissLists, import_faiss
from manylens.ensembles.growing import GrowingRows
from manylens.ensembles.leading_scan import LeadingScan
from manylens.ensembles.representation import fitted_modules, transformed
from manylens.persistence import DATA_ONLY, is_our_class

FORMAT = 1
PARAMETERS = ("n_neighbors", "method", "backend", "n_leading", "n_candidates", "recall", "n_jobs")


def save_index(index, folder):
    """Write a fitted index.

    Parameters
    ----------
    index : ModuleNeighbors
        Fitted.
    folder : str or path
        Made where it is not there.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    description = {
        "format": FORMAT,
        "parameters": {name: plain(getattr(index, name)) for name in PARAMETERS},
        "widths": index.widths_.tolist(),
        "n_features_in": int(index.n_features_in_),
        "n_leading": int(index.n_leading_),
        "candidates_per_neighbor": float(index.candidates_per_neighbor_),
    }
    if hasattr(index, "feature_names_in_"):
        description["feature_names_in"] = list(index.feature_names_in_)
    arrays = {
        "coordinates": index.coordinates_,
        "mean": index.composite_.mean,
        "axes": index.composite_.axes,
        "probe": index.probe_,
    }
    for m, finder in enumerate(index._finders):
        if isinstance(finder, FaissLists):
            import_faiss().write_index(finder.index, str(folder / f"finder{m}.faiss"))
        else:
            arrays[f"finder{m}"] = finder.rows
    for name, array in arrays.items():
        write_array(folder / f"{name}.npy", array)
    if find_spec("skops") is not None:
        import skops.io

        skops.io.dump(index.modules_, folder / "modules.skops")
    # Last, so that a folder with a description is whole.
    (folder / "index.json").write_text(json.dumps(description, indent=1) + "\n")


def load_index(kind, folder, modules=None, mmap=True):
    """Read what `save_index` wrote.

    Parameters
    ----------
    kind : type
        ModuleNeighbors.
    folder : str or path
        Where it was saved.
    modules : transformer, optional
        Fitted modules; else those saved beside the index.
    mmap : bool
        Whether rows stay in their files.

    Returns
    -------
    ModuleNeighbors
        Ready to search.
    """
    folder = Path(folder)
    if not (folder / "index.json").exists():
        raise FileNotFoundError(f"{folder} holds no index: index.json, which save writes last, is missing.")
    description = json.loads((folder / "index.json").read_text())
    if description["format"] != FORMAT:
        raise ValueError(
            f"{folder} is of format {description['format']}; this version of manylens reads {FORMAT}."
        )
    modules = load_modules(folder / "modules.skops") if modules is None else fitted_modules(modules)
    index = kind(modules, **description["parameters"])
    index._check_parameters()
    index.modules_, index.widths_ = modules, np.array(description["widths"])
    index.fitted_as_ = index._layout()
    index.n_features_in_ = description["n_features_in"]
    index.n_leading_ = description["n_leading"]
    index.candidates_per_neighbor_ = description["candidates_per_neighbor"]
    if "feature_names_in" in description:
        index.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
    mean, axes = np.load(folder / "mean.npy"), np.load(folder / "axes.npy")
    index.composite_ = CompositeAxes(len(index.widths_), mean, axes)
    index._rows_held = GrowingRows(load_rows(folder / "coordinates.npy", mmap))
    index._settled_at = index.n_samples_fit_
    index._finders = [load_finder(folder, m, index, mmap) for m in range(index._n_finders())]
    index.probe_ = np.load(folder / "probe.npy")
    refuse_other_modules(index)
    return index


def load_modules(path):
    """The modules that were saved with an index, if all they hold is manylens's and scikit-learn's own.

    Parameters
    ----------
    path : path
        Of skops's file.

    Returns
    -------
    transformer
        Fitted.
    """
    if not path.exists():
        raise FileNotFoundError(
            "The modules were not saved with this index (skops was not installed): give them, "
            "ModuleNeighbors.load(folder, modules)."
        )
    if find_spec("skops") is None:
        raise ImportError(
            "The modules are saved in skops's format: pip install 'manylens[save]', or give them, "
            "ModuleNeighbors.load(folder, modules)."
        )
    import skops.io

    unknown = skops.io.get_untrusted_types(file=path)
    strangers = [name for name in unknown if name not in DATA_ONLY and not is_our_class(name)]
    if strangers:
        raise ValueError(
            f"The saved modules hold types that manylens does not know ({', '.join(strangers)}): load them "
            "yourself if you trust them, and give them to ModuleNeighbors.load(folder, modules)."
        )
    return skops.io.load(path, trusted=unknown)


def load_finder(folder, number, index, mmap):
    """One back end of a saved index.

    Parameters
    ----------
    folder : path
        Where.
    number : int
        Which.
    index : ModuleNeighbors
        For its parameters.
    mmap : bool
        Whether rows stay in their file.

    Returns
    -------
    LeadingScan or FaissLists
        Ready.
    """
    if index.backend == "faiss":
        finder = FaissLists.__new__(FaissLists)
        finder.n_jobs = index.n_jobs
        finder.index = import_faiss().read_index(str(folder / f"finder{number}.faiss"))
        return finder
    return LeadingScan.from_rows(load_rows(folder / f"finder{number}.npy", mmap), index.n_jobs)


def write_array(path, array):
    """Write a .npy file whole or not at all; a file that someone has mapped is replaced, not changed.

    Parameters
    ----------
    path : path
        Of the file.
    array : ndarray
        What goes in.
    """
    part = path.with_name(f"part-{path.name}")
    np.save(part, array)
    part.replace(path)


def load_rows(path, mmap):
    """An array from a file, mapped copy-on-write (the file never changes) or read.

    Parameters
    ----------
    path : path
        Of the .npy file.
    mmap : bool
        Whether to map.

    Returns
    -------
    ndarray
        Plain, so that compiled loops take it as they take any other.
    """
    return np.asarray(np.load(path, mmap_mode="c" if mmap else None, allow_pickle=False))


def refuse_other_modules(index):
    """Raise where the modules do not map the index's first row to its stored coordinates.

    Parameters
    ----------
    index : ModuleNeighbors
        Just loaded.
    """
    stored = index.coordinates_[:1]
    try:
        found = index.composite_.coordinates(transformed(index.modules_, index.probe_))
    except ValueError:
        found = np.full_like(stored, np.inf)
    scale = np.sqrt(np.finfo(stored.dtype).eps) * max(1e-30, float(np.abs(stored).max()))
    if found.shape != stored.shape or not np.allclose(found, stored, rtol=0, atol=10 * scale):
        raise ValueError(
            "These modules are not the ones that the index was built with: its first row gets other "
            "coordinates from them."
        )


def plain(value):
    """A number as JSON can hold it.

    Parameters
    ----------
    value : object
        A parameter.

    Returns
    -------
    object
        The same, in Python's own types.
    """
    return value.item() if isinstance(value, np.generic) else value
