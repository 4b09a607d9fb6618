"""Sphinx settings of the manylens site."""

from importlib.util import find_spec
from pathlib import Path

import manylens

# Examples that need an optional package; without it they would stop the build.
NEEDS = {"plot_networks_diversity": "torch", "plot_transfer_network": "efficientnet_lite_pytorch"}
LEFT_OUT = [rf"{name}\.py" for name, package in NEEDS.items() if find_spec(package) is None]

project = "manylens"
author = "The manylens developers"
release = manylens.__version__
extensions = [
    "myst_nb",  # Markdown, and the notebooks with their outputs
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "jupyter_execute", "gallery/*.ipynb", "gallery/*.py"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 180
nb_execution_raise_on_error = True
html_theme = "pydata_sphinx_theme"
html_title = "manylens"
html_theme_options = {"show_toc_level": 2, "header_links_before_dropdown": 5}
# Guides have no pages below them, so that the sidebar would be empty; API and gallery have some.
html_sidebars: dict[str, list[str]] = {path.stem: [] for path in Path(__file__).parent.glob("*.md")}
del html_sidebars["api"]
autosummary_generate = True
numpydoc_show_class_members = False
suppress_warnings = [
    "config.cache",  # the gallery's settings contain a class
    "myst.xref_missing",  # the README links to files outside of docs
    "ref.ref",  # methods inherited from scikit-learn refer to its pages
]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "ignore_pattern": "|".join([r"run_all\.py", *LEFT_OUT]),
    "download_all_examples": False,
    "show_memory": False,
    "capture_repr": (),
}


def escape_bars(_app, _what, _name, _obj, _options, lines):
    """Escape norms such as |x| in docstrings, which reStructuredText would treat as substitutions."""
    lines[:] = [
        line if line.lstrip().startswith((">>>", "...")) else line.replace("|", r"\|") for line in lines
    ]


def setup(app):
    """Register the hook after numpydoc's."""
    app.connect("autodoc-process-docstring", escape_bars, priority=900)
