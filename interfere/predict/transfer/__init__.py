"""Predictions of many pairs from few measured ones: those of a new device type or of a site's own jobs.

`device_transfer` starts from the tables of other device types, `site_belief` from a published model; both give a
`PairBelief`: predictions with intervals, how far off they are, and the pairs worth measuring next.
"""
