"""`python -m interfere` is the console script."""

from interfere.cli import console_script

if __name__ == "__main__":
    console_script()
