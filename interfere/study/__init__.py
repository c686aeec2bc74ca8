"""Studies: many independent computations whose results are compared.

`engine` runs tasks on one process or on several, with progress and the time left; `saved_results` keeps what is done,
so that an interrupted run goes on.
"""
