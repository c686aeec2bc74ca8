"""Commands of the `interfere` console script: each parses, calls one library function, prints."""
