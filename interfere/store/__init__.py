"""The server's persistent state: profiles, observations, checkpoints, decisions and ledgers, behind one protocol."""
