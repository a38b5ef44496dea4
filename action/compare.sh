#!/bin/sh
# Compares the runs in $OUT with those in $BASE by the thresholds of $FAIL_IF. Ends with code 4 if one is crossed.
set -eu
set -- "$BASE"/run-*.json -- "$OUT"/run-*.json
for threshold in $FAIL_IF; do
    set -- --fail-if "$threshold" "$@"
done
code=0
inrush load compare "$@" > "$OUT/comparison.txt" || code=$?
cat "$OUT/comparison.txt"
exit "$code"
