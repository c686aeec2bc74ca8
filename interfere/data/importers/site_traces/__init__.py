"""Importers of job histories that sites have: `sacct` of Slurm, `job_csv` of anything else; `workload_map` names their
workloads."""
