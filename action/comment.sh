#!/bin/sh
# Writes the last run and the comparison into one comment of pull request $NUMBER in $REPOSITORY. A later run of the same $NAME
# replaces it.
set -eu
MARK="<!-- inrush load: $NAME -->"
export MARK
{
    echo "$MARK"
    cat "$OUT/run.md"
    if [ -s "$OUT/comparison.txt" ]; then
        printf '\n```\n'
        cat "$OUT/comparison.txt"
        printf '```\n'
    fi
} > "$OUT/comment.md"

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

# Ends the step after a call of gh that failed.
give_up() {
    cat "$errors" >&2
    # A token that may not comment is no fault of the server under test. A rate limit is a 403 too.
    case $(cat "$errors") in
        *"Resource not accessible"*)
            echo "::warning::no comment: the job needs pull-requests: write, which a fork's pull request never has"
            exit 0
            ;;
    esac
    exit 1
}

comments="repos/$REPOSITORY/issues/$NUMBER/comments"
ids=$(gh api --paginate "$comments" --jq '.[] | select(.body | startswith(env.MARK)) | .id' 2> "$errors") || give_up
id=$(printf '%s\n' "$ids" | head -n 1)
if [ -n "$id" ]; then
    set -- --method PATCH "repos/$REPOSITORY/issues/comments/$id"
else
    set -- --method POST "$comments"
fi
gh api "$@" --field body=@"$OUT/comment.md" 2> "$errors" > /dev/null || give_up
