"""Schedulers that call the server: each is a port of one round, and runs with the bare install of `interfere`."""
