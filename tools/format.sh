#!/usr/bin/env bash
# Formats every C++ and CUDA file; with --check, only says which ones are not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
format="clang-format-$(cat tools/clang-version)"
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh')
if [ "${1:-}" = --check ]; then
  "$format" --dry-run --Werror "${files[@]}"
else
  "$format" -i "${files[@]}"
fi
