"""Predictions for a device type with few measured pairs, from those of other device types.

`device_transfer` is the door: the tables of other device types, the new one's profiles and pairs in, predictions with
intervals and the pairs worth measuring next out.
"""
