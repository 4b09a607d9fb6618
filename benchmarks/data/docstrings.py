"""A text task from installed packages: which package is the first paragraph of a docstring from?"""

import ast
import importlib.util
import re
from pathlib import Path

import numpy as np

PACKAGES = ("numpy", "scipy", "sklearn", "pandas", "matplotlib", "joblib", "numba")
NAMES = re.compile(rf"\b({'|'.join(PACKAGES)}|scikit-learn|np|pd|plt)\b", re.IGNORECASE)


def docstring_task(per_package, seed=0):
    """First paragraphs of the docstrings of functions and classes, and their packages.

    The names of the packages are struck out, also of those imported under a short name, and texts that occur
    twice or have fewer than four words are left out. Sources are parsed, not imported.

    Parameters
    ----------
    per_package : int
        Texts of each package; a package with fewer is left out.
    seed : int
        Which texts, and their order.

    Returns
    -------
    texts : list of str
    packages : ndarray of str
    """
    rng = np.random.default_rng(seed)
    seen: set[str] = set()
    chosen = []
    for package in PACKAGES:
        found = []
        files = source_files(package)
        for place in rng.permutation(len(files)):
            for text in first_paragraphs(files[place]):
                if text not in seen:
                    seen.add(text)
                    found.append(text)
            if len(found) >= 3 * per_package:  # more than needed, so that texts come from many files
                break
        if len(found) >= per_package:
            chosen += [(found[k], package) for k in rng.permutation(len(found))[:per_package]]
    order = rng.permutation(len(chosen))
    return [chosen[k][0] for k in order], np.array([chosen[k][1] for k in order])


def source_files(package):
    """Python sources of an installed package, without its tests, in the order of their names."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(spec.submodule_search_locations[0])
    return sorted(path for path in folder.rglob("*.py") if not {"tests", "test"} & set(path.parts))


def first_paragraphs(path):
    """First paragraph of every docstring in a file, on one line, without package names."""
    tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            text = (ast.get_docstring(node) or "").split("\n\n")[0]
            text = " ".join(NAMES.sub("", text).split())
            if len(text.split()) >= 4:
                yield text
