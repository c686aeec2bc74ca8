"""A discrete-event simulator of scheduling: what a scheduler would have done to a recorded trace of jobs.

Input. `world`: jobs that arrive, with or without deadlines, and devices that are present in windows of time.
`trace_worlds` makes worlds of a recorded trace, one a virtual cluster; `edge_world` draws deadlines and turns nodes
into edge devices that are present at night only. `truth`: how fast jobs really run together. `beliefs`: what a
scheduler believes about that.

Simulation. `cluster`: which jobs wait and run now, and how far each has come. `replay`: the clock that moves a cluster
from event to event and asks a scheduler at each, or in rounds (`schedulers.registry`). A job may load before its first
step and end after its last one (`world.Phase`). A scheduler is whatever has `decide` (`cluster.Scheduler`): it reads
the cluster and answers starts, stops, drops, promised deadlines, and when it wants to be asked again.

Schedulers. `schedulers.records` names every scheduler as a record of its queue, backfill and sharing;
`schedulers.registry` makes it. One of them is the decision function that the server runs (`schedulers.planner`).

Output. `score`: completion times, utilisation, sharing and deadlines of replays; `uncertainty`: how sure a mean over
recorded days is. `interfere.study` runs many replays and compares them.
"""
