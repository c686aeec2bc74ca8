"""What people read of a table: the card beside it, the page, and the figures of each domain that both show."""
