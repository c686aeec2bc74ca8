"""The commands of `interfere data`: import, list, check and describe tables of measurements."""
