"""`python -m manylens`: the command line."""

import sys

from manylens.cli import shell

sys.exit(shell())
