"""What people install: the wheel, the source archive, and fresh environments made of them."""
