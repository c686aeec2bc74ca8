"""The models of a running server: the archive of served models, the checks of a new model, the watch for
publications."""
