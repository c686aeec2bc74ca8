"""Commands of the training station; each imports its libraries when it runs."""
