"""The server's persistent state in one SQLite file: profiles, observations, checkpoints, decisions and ledgers."""
