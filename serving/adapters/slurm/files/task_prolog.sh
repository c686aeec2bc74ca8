#!/bin/sh
# interfere: TaskProlog. Tells a job where interfere.progress writes its step marks: into the file that the prolog made,
# or into a folder in which every user may make files.
folder="${INTERFERE_SPOOL:-/var/spool/interfere}"
[ -w "$folder/$SLURM_JOB_ID.jsonl" ] || [ -w "$folder" ] || exit 0
echo "export INTERFERE_PROGRESS=$folder/$SLURM_JOB_ID.jsonl"
