"""The question `replay`: schedulers on a trace, with sharing and without; which is better, and by how much.

`question`: its fields, its replays and its answer. `report`, `figures`, `files`: for people and for programs.
"""
