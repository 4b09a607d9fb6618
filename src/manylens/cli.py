"""The command line: `manylens demo`."""

import argparse


def main(arguments=None):
    """Run the command line.

    Parameters
    ----------
    arguments : list of str, optional
        The words after `manylens`; those of the shell where None.

    Returns
    -------
    int
        The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="manylens", description="Many small, diverse views of the same data."
    )
    parser.parse_args(arguments)
    return 0
