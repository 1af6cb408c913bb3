#!/usr/bin/env bash
# The installed tree is small, can be moved, and needs nothing of the host but libc.
#   install_test.sh BUILD CMAKE
set -euo pipefail
build=$1
cmake=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "install_test: $*" >&2
  exit 1
}

"$cmake" --install "$build" --prefix "$scratch/there" >/dev/null
mv "$scratch/there" "$scratch/moved"
cd "$scratch/moved"

kib=$(du -sk . | cut -f1)
[ "$kib" -le 48828 ] || fail "the tree takes $kib KiB, more than 50 MB"

for binary in lastflop lastflopd lastflop-worker; do
  # libc and its companions come with the host; everything else must come with the tree.
  outside=$(ldd "bin/$binary" | awk '/=> \// { print $3 }' | grep -v "^$PWD/" |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv)\.so' || true)
  [ -z "$outside" ] || fail "$binary takes from the host: $outside"
  missing=$(ldd "bin/$binary" | grep 'not found' || true)
  [ -z "$missing" ] || fail "$binary misses: $missing"
  env -i "bin/$binary" --help >/dev/null || fail "$binary --help ends with $?"
done

[ -f share/lastflop/experiments/quickstart.yaml ] || fail "no experiments/quickstart.yaml"
[ -n "$(ls share/lastflop/db/schema)" ] || fail "no db/schema"
env -i bin/lastflop validate share/lastflop/experiments/quickstart.yaml >/dev/null ||
  fail "lastflop validate of the installed quickstart ends with $?"
echo "install_test: $kib KiB"
