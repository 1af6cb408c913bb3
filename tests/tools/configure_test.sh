#!/usr/bin/env bash
# `make` configures again when it is asked for another LASTFLOP_CUDA than the tree was made for, or
# nvcc has come or gone, and not otherwise. cmake is a stand-in that notes what it was called with.
#   configure_test.sh SOURCE
set -euo pipefail
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
export CALLS="$scratch/calls" CACHED_NVCC=LASTFLOP_NVCC-NOTFOUND
cat >"$scratch/bin/cmake" <<'STUB'
#!/usr/bin/env bash
echo "$*" >>"$CALLS"
while [ $# -gt 0 ]; do
  case $1 in
    -B) build=$2; shift ;;
    -DLASTFLOP_CUDA=*) cuda=${1#*=} ;;
  esac
  shift
done
mkdir -p "$build"
touch "$build/build.ninja"
printf 'LASTFLOP_CUDA:STRING=%s\nLASTFLOP_NVCC:FILEPATH=%s\n' "$cuda" "$CACHED_NVCC" \
  >"$build/CMakeCache.txt"
STUB
chmod +x "$scratch/bin/cmake"
export PATH="$scratch/bin:$PATH"

fail() {
  echo "configure_test: $*" >&2
  exit 1
}

# What make calls cmake with for LASTFLOP_CUDA=$1; "" when it does not. The set-up counts as done.
configured_for() {
  : >"$CALLS"
  make -s -C "$source" -o setup "BUILD=$scratch/build" "LASTFLOP_CUDA=$1" configure >&2
  cat "$CALLS"
}

case $(configured_for off) in
  *CMAKE_BUILD_TYPE=RelWithDebInfo*) ;;
  *) fail "a tree that is not there is not made" ;;
esac
[ -z "$(configured_for off)" ] || fail "the same again is not left alone"
case $(configured_for on) in
  *-DLASTFLOP_CUDA=on*) ;;
  *) fail "off, then on: LASTFLOP_CUDA is ignored" ;;
esac
case $(configured_for off) in
  *-DLASTFLOP_CUDA=off*) ;;
  *) fail "on, then off: LASTFLOP_CUDA is ignored" ;;
esac

# auto: with an nvcc that the tree does not know, with one that it knows, and when that is gone.
printf '#!/bin/sh\n' >"$scratch/bin/nvcc"
chmod +x "$scratch/bin/nvcc"
configured_for auto >/dev/null
export CACHED_NVCC="$scratch/bin/nvcc"
[ -n "$(configured_for auto)" ] || fail "an nvcc that has come is not noticed"
[ -z "$(configured_for auto)" ] || fail "with its nvcc the tree is not left alone"
rm "$scratch/bin/nvcc"
case $(configured_for auto) in
  *"-U LASTFLOP_NVCC"*) ;;
  *) fail "an nvcc that has gone is not noticed" ;;
esac
