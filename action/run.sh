#!/bin/sh
# Loads $URL $RUNS times with $FLAGS. $OUT gets run-N.json of each run; page, JUnit report and comment are of the last.
# Ends with the worst exit code of the runs.
set -euf
mkdir -p "$OUT"
worst=0
number=1
while [ "$number" -le "$RUNS" ]; do
    code=0
    # The flags are words, so they are split.
    inrush load $FLAGS -o text -o json="$OUT/run-$number.json" -o html="$OUT/run.html" -o junit="$OUT/run.xml" \
        -o markdown="$OUT/run.md" "$URL" || code=$?
    [ "$code" -le "$worst" ] || worst=$code
    number=$((number + 1))
done
exit "$worst"
