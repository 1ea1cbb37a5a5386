"""`python -m contraflow.designer.cli`, where the command is not installed."""

import sys

from contraflow.designer.cli import main

if __name__ == "__main__":
    sys.exit(main())
