#!/bin/sh
# interfere: Epilog. Writes down which GPUs a job had: Slurm forgets it when the job ends. Never fails: a failing epilog
# drains the node.
case "$SLURM_JOB_COMMENT" in *interfere:*) ;; *) exit 0 ;; esac
file="${INTERFERE_SPOOL:-/var/spool/interfere}/$SLURM_JOB_ID.${SLURM_JOB_RESTART_COUNT:-0}.$SLURMD_NODENAME.end"
printf '{"job": "%s", "restarts": %s, "node": "%s", "gpus": "%s"}\n' "$SLURM_JOB_ID" "${SLURM_JOB_RESTART_COUNT:-0}" \
  "$SLURMD_NODENAME" "$SLURM_JOB_GPUS" 2>/dev/null >"$file.tmp" && mv "$file.tmp" "$file" 2>/dev/null
exit 0
