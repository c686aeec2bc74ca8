"""Which model is served: the archive of those that were, the checks of a new one, the watch on what is published."""
