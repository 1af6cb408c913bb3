#!/usr/bin/env bash
# tools/tidy.sh says in its last line how many files it had no time for.
#   tidy_test.sh SOURCE
set -euo pipefail
source=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/repo/tools" "$scratch/repo/build" "$scratch/bin"
cp "$source/tools/tidy.sh" "$source/tools/clang-version" "$scratch/repo/tools"
cd "$scratch/repo"
echo '[]' >build/compile_commands.json
printf '#!/bin/sh\n' >"$scratch/bin/clang-tidy-$(cat tools/clang-version)"
chmod +x "$scratch/bin/"*
export PATH="$scratch/bin:$PATH" GIT_CONFIG_GLOBAL=/dev/null
git init -q .
touch a.cc b.cc
git add -A
git -c user.name=test -c user.email=test@localhost commit -q -m test

expect() {
  local last
  last=$(LASTFLOP_TIDY_BASE="" tools/tidy.sh build "$1" | tail -n 1)
  [ "$last" = "$2" ] || {
    echo "tidy_test: within $1 s the last line is: $last" >&2
    exit 1
  }
}
expect 60 "tidy: of 2 changed files 2 clean, 0 with findings, 0 NOT looked at (time)"
expect 0 "tidy: of 2 changed files 0 clean, 0 with findings, 2 NOT looked at (time)"
