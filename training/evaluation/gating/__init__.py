"""The gate between challenger and champion: on which rows they are compared, and by which rule."""
