#!/bin/sh
# interfere: TaskProlog. Tells a job where interfere.progress writes its step marks.
echo "export INTERFERE_PROGRESS=${INTERFERE_SPOOL:-/var/spool/interfere}/$SLURM_JOB_ID.jsonl"
