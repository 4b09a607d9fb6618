"""Colours that read on light and dark, and axes to draw on."""

SPECTRUM_COLOR, ENSEMBLE_COLOR, SINGLE_COLOR, WRONG_COLOR = "#8d99ae", "#2a8c9d", "#e07a4b", "#e5383b"
REFERENCE_STYLES = ("-", "--", "-.", ":")


def new_axes(caller):
    """Axes of a new figure of pyplot.

    Parameters
    ----------
    caller : str
        Who needs them, for the message where matplotlib is missing.

    Returns
    -------
    matplotlib.axes.Axes
        Empty.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(f'{caller} needs matplotlib: pip install "manylens[plot]".') from error
    return plt.subplots(layout="constrained")[1]
