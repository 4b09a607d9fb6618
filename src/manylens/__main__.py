"""`python -m manylens`: the command line."""

import sys

from manylens.cli import main

sys.exit(main())
