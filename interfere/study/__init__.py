"""Studies: questions to traces of jobs, and the engine that runs many independent computations.

`study`: traces, slowdowns, schedulers and a question as one record, from a TOML file or options. `coverage`: how much
of the trace the slowdowns know, and what to measure. `replays`: one replay as a task; `comparison`: what schedulers
change, with intervals. `questions` reads the inputs and asks a study: `replay_question` and `whatif_question` are two
questions, each with a report. `recorded_jobs` starts the jobs that a site has recorded once more, under Match.
`engine` runs tasks on one process or on several, with progress and the time left, and saves every result, so that an
interrupted run goes on. Cross-validations run on it too.
"""
