"""Beliefs about the pairs of jobs of which few were measured: compared with the champion, and published with it."""
