#!/bin/sh
# Writes the last run and the comparison into one comment of pull request $NUMBER in $REPOSITORY. A later run of the same $NAME
# replaces it.
set -eu
mark="<!-- inrush load: $NAME -->"
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
    set -- --method PATCH "repos/$REPOSITORY/issues/comments/$id"
else
    set -- --method POST "$comments"
fi
if ! said=$(gh api "$@" --field body=@"$OUT/comment.md" 2>&1 > /dev/null); then
    printf '%s\n' "$said" >&2
    # A token that may not write is no fault of the server under test.
    case $said in
        *"HTTP 403"*) echo "::warning::no comment: the job needs pull-requests: write, which a fork's pull request never has" ;;
        *) exit 1 ;;
    esac
fi
