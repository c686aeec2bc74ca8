"""`python -m interfere` is the console script."""

from interfere.cli import main

if __name__ == "__main__":
    main()
