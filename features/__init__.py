"""Turns recorded facts into numbers: the only encoder, the same bytes for training and serving."""
