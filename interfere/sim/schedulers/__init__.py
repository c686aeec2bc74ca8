"""Schedulers of the simulator, named in `names` and made in `registry`.

`orders` say which job comes first. `queue` starts jobs in order and stops none, `preemptive` stops running jobs for
earlier ones, `slot_admission` promises deadlines and keeps them. Each may share devices by `greedy_sharing` or by the
server's own decision function, which `planner` calls; `planner` and `deadline_planner` also hold the schedulers that
leave everything to it. `easy_backfill` reserves devices for the first job that waits.
`duration_estimates` and `deadlines` are what they know of run times and deadlines; `learning` corrects predictions by
what the replayed jobs measured.
"""
