"""Sphinx settings of the manylens site."""

import manylens

project = "manylens"
author = "The manylens developers"
release = manylens.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py"]
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_toc_level": 2}
autosummary_generate = True
numpydoc_show_class_members = False
suppress_warnings = ["config.cache"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "ignore_pattern": r"run_all\.py",
    "download_all_examples": False,
    "show_memory": False,
}
