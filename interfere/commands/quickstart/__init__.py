"""The command `interfere quickstart`: profile, train, serve, match, and run the chosen pairing for real."""
