"""The commands that train, score, promote and replay models; each imports its libraries when it runs."""
