#!/usr/bin/env bash
# must_find.sh PATTERN COMMAND...
# Runs a check on a planted bug. Passes if the check fails and its report, joined into one line,
# matches the pattern.
set -euo pipefail

pattern=$1
shift
status=0
report=$(timeout 120 "$@" 2>&1) || status=$?
if [ "$status" = 0 ]; then
    echo "the planted bug was not found by: $*"
elif ! [[ ${report//$'\n'/ } =~ $pattern ]]; then
    echo "the planted bug was found, but not as '$pattern', by: $*"
else
    echo "planted bug found: $*"
    exit 0
fi
printf '%s\n' "${report:0:4000}"
exit 1
