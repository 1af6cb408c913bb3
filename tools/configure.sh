#!/usr/bin/env bash
# Configures a build tree for LASTFLOP_CUDA=auto|on|off. Does nothing, fast, when it is already: it
# was made for the same word, and nvcc has neither come nor gone since.
#
#   tools/configure.sh BUILD auto|on|off
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
cuda=$2

# A value of the tree's cache; "" when it has none.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt" 2>/dev/null || true; }

# Where cmake/LastflopCuda.cmake looks for it.
has_nvcc() {
  command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
    compgen -G '.venv/lib/python3*/site-packages/nvidia/cu*/bin/nvcc' >/dev/null
}

tree_nvcc=$(cached LASTFLOP_NVCC)
case $tree_nvcc in *-NOTFOUND) tree_nvcc= ;; esac
nvcc_is_gone=0
if [ -n "$tree_nvcc" ] && [ ! -x "$tree_nvcc" ]; then
  nvcc_is_gone=1
fi

is_configured() {
  [ -f "$build/build.ninja" ] && [ "$(cached LASTFLOP_CUDA)" = "$cuda" ] || return 1
  [ "$cuda" != off ] || return 0
  [ "$nvcc_is_gone" = 0 ] || return 1
  [ -n "$tree_nvcc" ] || ! has_nvcc
}

if is_configured; then
  exit 0
fi
arguments=(-S . -B "$build" "-DLASTFLOP_CUDA=$cuda")
if [ ! -f "$build/CMakeCache.txt" ]; then
  arguments+=(-G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo)
elif [ "$nvcc_is_gone" = 1 ]; then
  arguments+=(-U LASTFLOP_NVCC -U CMAKE_CUDA_COMPILER)
fi
exec cmake "${arguments[@]}"
