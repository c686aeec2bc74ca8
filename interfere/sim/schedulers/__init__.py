"""Schedulers of the simulator, named in `records` and made in `registry`.

`orders` say which job comes first, by `estimates` of run times. `queue` starts jobs in order and stops none, or admits
deadlines by slots; `preemptive` stops running jobs for earlier ones, or pairs them anew. Each may share devices,
greedily (`sharing`) or by the server's own decision function, which `planner` calls; it also holds the schedulers that
leave everything to the server. `easy_backfill` reserves devices for the first job that waits. A scheduler in `registry`
corrects predictions by what the replayed jobs measured.
"""
