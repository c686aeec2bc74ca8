"""Bring a site's own jobs in: profile them, measure the pairs that teach most, train, say what is known."""
