"""The Slurm adapter: pending jobs that share GPUs start where the server's matching puts them.

One loop, stateless: what it knows stands in Slurm (`AdminComment`) and in the spool, so that it may be killed anywhere.
"""
