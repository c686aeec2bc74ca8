"""Run the command line: `python -m interfere` does what the console script `interfere` does."""

import os
import sys


def leave_current_folder() -> None:
    """Take the folder that `python -m` puts first on the import path away again, unless interfere lies in it.

    A folder with somebody's own `numpy/` or `grpc.py` would hide the library; the console script never looks there.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != os.path.realpath(home):
        del sys.path[0]


if __name__ == "__main__":
    leave_current_folder()
    from interfere.cli import console_script

    console_script()
