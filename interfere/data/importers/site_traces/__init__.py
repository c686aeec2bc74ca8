"""Importers of job histories that sites have: `sacct` of Slurm, `pods` of Kubernetes, `job_csv` of anything else;
`workload_map` names their workloads."""
