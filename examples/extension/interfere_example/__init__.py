"""One of each kind of extension."""
