#!/usr/bin/env bash
# must_find.sh PATTERN COMMAND...
# Runs a check on a planted bug. Passes if the check fails and its report, joined into one line,
# matches the pattern. Tries five times: how threads take turns decides whether a run shows a race.
set -euo pipefail

pattern=$1
shift
for _ in 1 2 3 4 5; do
    status=0
    report=$(timeout 120 "$@" 2>&1) || status=$?
    if [ "$status" != 0 ] && [[ ${report//$'\n'/ } =~ $pattern ]]; then
        echo "planted bug found: $*"
        exit 0
    fi
done
if [ "$status" = 0 ]; then
    echo "the planted bug was not found by: $*"
else
    echo "the planted bug was found, but not as '$pattern', by: $*"
fi
printf '%s\n' "${report:0:4000}"
exit 1
