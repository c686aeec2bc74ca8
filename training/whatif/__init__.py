"""What sharing GPUs would do to a cluster whose trace of jobs is given: `interfere whatif`.

`question`: the options. `inputs`: the trace, the truth and how much of the trace it covers. `plan`: the replays.
`effects`: what sharing changes, with intervals. `missing_pairs`: which truth is missing, and which pairs to measure.
`answer`: all of it together. `wording`: its sentences. `report`: the document for people, and the facts for programs.
"""
