"""Answers that the server composes from several predictions."""
