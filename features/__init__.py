"""The feature encoder: turns recorded facts of jobs into numbers, with equal bytes in training and in serving."""
