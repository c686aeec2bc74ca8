"""The question `whatif`: what sharing GPUs would do to a cluster whose trace of jobs is given.

`question`: its fields, its replays and its answer. `effects`: what sharing changes, with intervals. `missing_pairs`:
which truth is missing, and which pairs to measure. `wording`: its sentences. `report`: for people and for programs.
"""
