"""Commands that read what monitoring recorded."""
