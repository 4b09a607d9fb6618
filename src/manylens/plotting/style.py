"""Colors that read on light and dark, and axes to draw on."""

SPECTRUM_COLOR, ENSEMBLE_COLOR, SINGLE_COLOR, WRONG_COLOR = "#8d99ae", "#2a8c9d", "#e07a4b", "#e5383b"
REFERENCE_STYLES = ("-", "--", "-.", ":")


def import_pyplot(display):
    """matplotlib.pyplot, or one sentence on how to get it.

    Parameters
    ----------
    display : object
        What is to be drawn; the message names its class.

    Returns
    -------
    module
        The package `matplotlib.pyplot`.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f'{type(display).__name__} needs matplotlib: pip install "manylens[plot]".'
        ) from error
    return plt


def axes_or_new(ax, display, **options):
    """The given axes, or those of a new figure.

    Parameters
    ----------
    ax : matplotlib.axes.Axes or None
        Where to draw.
    display : object
        What is to be drawn.
    **options
        For pyplot's subplots.

    Returns
    -------
    matplotlib.axes.Axes
        Where to draw.
    """
    return import_pyplot(display).subplots(layout="constrained", **options)[1] if ax is None else ax
