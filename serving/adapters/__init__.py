"""Schedulers that call the server: each adapter imports only `interfere`, so that the bare install is enough."""
