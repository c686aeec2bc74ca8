"""Which pairs of a site to measure next: a joint belief about all of them, and what each measurement would tell."""
