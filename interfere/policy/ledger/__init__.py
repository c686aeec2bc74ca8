"""What a scope has given away: promised starts, memory grants, and who uses more than its grant."""
