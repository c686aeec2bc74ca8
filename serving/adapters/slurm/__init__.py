"""The Slurm adapter: pending jobs that share GPUs start where the server's matching puts them.

The adapter is one stateless loop. Its state is kept in Slurm (`AdminComment`) and in the spool, so the adapter may be
killed at any time.
"""
