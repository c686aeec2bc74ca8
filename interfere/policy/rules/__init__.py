"""The rules that forbid a placement: memory, slowdown caps, run time against deadlines and windows."""
