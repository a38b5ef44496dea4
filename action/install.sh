#!/bin/sh
# Puts inrush of release $VERSION on the PATH of the later steps. Without a version it must be there already.
# Refuses a $NAME that would end the HTML comment that marks the action's comment.
set -eu
case $NAME in
    "" | *[!A-Za-z0-9" "._-]*)
        echo "::error::the input name may have letters, digits, spaces, dots, underscores and hyphens only"
        exit 1
        ;;
esac
if [ -z "$VERSION" ]; then
    command -v inrush > /dev/null && exit 0
    echo "::error::inrush is not on PATH: set the input version to a release, or install inrush in an earlier step"
    exit 1
fi
# The runner does not name the repository of an action that lies in the workflow's own.
release=$GITHUB_SERVER_URL/${REPOSITORY:-$GITHUB_REPOSITORY}/releases/download/v${VERSION#v}
program=inrush-x86_64-linux
folder=$RUNNER_TEMP/inrush-$VERSION
mkdir -p "$folder"
cd "$folder"
for file in "$program" SHA256SUMS; do
    curl --fail --silent --show-error --location --retry 3 --output "$file" "$release/$file"
done
grep "  $program\$" SHA256SUMS | sha256sum --check --strict
install -m 755 "$program" inrush
echo "$folder" >> "$GITHUB_PATH"
