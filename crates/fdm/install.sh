#!/bin/sh
# Installs libfdm: header, static and shared library, pkg-config file and man page.
#
#   install.sh PREFIX [ARCHIVE]
#
# ARCHIVE is a libfdm.a that was built already; without it, one is built with optimisation. CC is the C
# compiler, cc where it is not set.
#
# The shared library is linked here, from the archive, and not by rustc: rustc hands the linker a version
# script of its own without a version, and GNU ld takes no other beside it.
set -eu

case ${1-} in
"" | -*)
    echo "usage: $0 PREFIX [ARCHIVE]" >&2
    exit 2
    ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
prefix=$(cd "$1" && pwd)

if [ $# -ge 2 ]; then
    archive=$2
else
    target=${CARGO_TARGET_DIR:-$here/../../target}
    cargo build --release --manifest-path "$here/Cargo.toml" --target-dir "$target"
    archive=$target/release/libfdm.a
fi

# What Rust's standard library stands on: `rustc --print native-static-libs`.
private="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/share/man/man3"
cp "$here/include/fdm.h" "$prefix/include/fdm.h"
cp "$here/fdm.3" "$prefix/share/man/man3/fdm.3"
cp "$archive" "$prefix/lib/libfdm.a"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" -e "s|@PRIVATE@|$private|" \
    "$here/fdm.pc.in" >"$prefix/lib/pkgconfig/fdm.pc"

# shellcheck disable=SC2086 # the private libraries are several words
${CC:-cc} -shared -o "$prefix/lib/libfdm.so.1" \
    -Wl,-soname,libfdm.so.1 -Wl,--version-script="$here/libfdm.map" -Wl,-z,defs -Wl,--gc-sections \
    -Wl,--whole-archive "$prefix/lib/libfdm.a" -Wl,--no-whole-archive -Wl,--as-needed $private
ln -sf libfdm.so.1 "$prefix/lib/libfdm.so"
