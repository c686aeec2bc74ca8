"""From predictions to decisions: pure functions, the same for the server and for a replay."""
