"""The folder that `interfere run --priority` puts first on the path of the program's Python."""
