"""Fits and judges how slowdowns of groups are composed, on the groups that tables hold."""
