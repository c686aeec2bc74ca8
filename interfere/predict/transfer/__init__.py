"""Predictions of many pairs from few measured ones: those of a new device type or of a site's own jobs.

Both start from tables of other device types, or from a published model, and give a
`PairBelief`: predictions with intervals, how far off they are, and the pairs worth measuring next.
"""
