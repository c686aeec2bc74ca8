"""The exported graphs of a model folder: how they are run, and how large a matrix they may be asked for."""
