"""Trace replay: what a scheduler would have done to a trace of jobs, had devices been shared.

`worlds` turns a recorded trace into what is replayed, `world`: jobs that arrive and devices that are there; `cluster`
is what runs now, `replay` the clock that moves it, `truth` how fast jobs really run. `queueing` and `preempting` decide
in an order of `orders`, with `packing` or `planned` sharing on what a `forecast` believes; `policies` names them,
`study` compares several on several traces, `score` counts. A scheduler is whatever has `decide` (`cluster.Scheduler`):
it reads the cluster and answers starts, stops, and when it wants to be asked again.

For schedulers of deadlines and devices that come and go: `SimDevice.windows` says when a device is there (a job on one
that goes is stopped, as a preemption), `Cluster.free` lists those that are there now and empty, `SimDevice.until_s`
says when one goes, and whatever a job brings (`deadline_s`, `pools`, `checkpoint_s`) is `cluster.jobs[id].job`.
"""
