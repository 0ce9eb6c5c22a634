"""`python -m rocketpipe`: the program `rocketpipe`."""

import sys

from rocketpipe.cli import main

if __name__ == "__main__":
    sys.exit(main())
