#!/bin/sh
# interfere: Prolog, run by root before a job. Makes the file that the job marks its steps in, for the job's user: nobody
# can make it first, and whatever else has its name is replaced. The folder's group (the advisor's) may read it. Never
# fails: a failing prolog drains the node.
case "$SLURM_JOB_COMMENT" in *interfere:*) ;; *) exit 0 ;; esac
case "$SLURM_JOB_ID" in *[!0-9]*|"") exit 0 ;; esac
case "$SLURM_JOB_UID" in *[!0-9]*|"") exit 0 ;; esac
folder="${INTERFERE_SPOOL:-/var/spool/interfere}"
file="$folder/$SLURM_JOB_ID.jsonl"
[ ! -L "$folder" ] || exit 0
# closed to other users, or sticky: no other user can put something else in the place of the new file
case "$(stat -c %A "$folder" 2>/dev/null)" in d???????-?|d????????[tT]) ;; *) exit 0 ;; esac
# a job that was requeued goes on in its file
[ ! -L "$file" ] && [ -f "$file" ] && [ "$(stat -c '%u %h' "$file" 2>/dev/null)" = "$SLURM_JOB_UID 1" ] && exit 0
umask 077
new=$(mktemp "$folder/.$SLURM_JOB_ID.XXXXXXXX" 2>/dev/null) || exit 0
# chown is last before the rename: nobody but root can touch the file until then
chmod 0640 "$new" && chown -h "$SLURM_JOB_UID:$(stat -c %g "$folder")" "$new" && mv -fT "$new" "$file" || rm -f "$new"
exit 0
