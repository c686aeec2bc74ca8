"""What sharing devices has cost a site, estimated from its monitoring; what to change, and what to measure next."""
