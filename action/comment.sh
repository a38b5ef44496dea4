#!/bin/sh
# Writes the last run and the comparison into one comment of pull request $NUMBER in $REPOSITORY; a later run replaces it.
set -eu
mark='<!-- inrush load -->'
{
    echo "$mark"
    cat "$OUT/run.md"
    if [ -s "$OUT/comparison.txt" ]; then
        printf '\n```\n'
        cat "$OUT/comparison.txt"
        printf '```\n'
    fi
} > "$OUT/comment.md"
comments="repos/$REPOSITORY/issues/$NUMBER/comments"
id=$(gh api --paginate "$comments" --jq ".[] | select(.body | startswith(\"$mark\")) | .id" | head -n 1)
if [ -n "$id" ]; then
    gh api --method PATCH "repos/$REPOSITORY/issues/comments/$id" --field body=@"$OUT/comment.md" > /dev/null
else
    gh api --method POST "$comments" --field body=@"$OUT/comment.md" > /dev/null
fi
