#!/usr/bin/env bash
# Runs clang-tidy on the .cc files that changed, newest change first, within a time budget.
#
#   tools/tidy.sh BUILD [SECONDS]
#
# BUILD is a folder with compile_commands.json, built. Changed means: since $LASTFLOP_TIDY_BASE, or
# the merge base with origin/main or, where HEAD is already in it, in the last 20 commits. A finding
# fails the run. Files that the budget leaves no time for are listed, and do not.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
seconds=${2:-600}
tidy="clang-tidy-$(cat tools/clang-version)"

base=${LASTFLOP_TIDY_BASE:-}
if [ -z "$base" ]; then
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-list -n 1 --skip=20 HEAD)
  fi
fi
# Without a base every commit counts: the history is shorter than 20.
mapfile -t files < <(git log --format= --name-only --diff-filter=AMR ${base:+"$base..HEAD"} -- '*.cc' |
  awk 'NF && !seen[$0]++' | while read -r file; do [ -f "$file" ] && echo "$file"; done)
if [ ${#files[@]} -eq 0 ]; then
  echo "tidy: no .cc file changed"
  exit 0
fi
echo "tidy: ${#files[@]} changed files, at most $seconds s"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# clang-tidy cannot read the header that gcc precompiled for tests (tests/main/CMakeLists.txt), and
# does not know a warning that gcc has for unity builds.
sed -E -e 's/ -Winvalid-pch -include [^ ]*cmake_pch\.hxx//' -e 's/ -Wno-subobject-linkage//' "$build/compile_commands.json" \
  >"$work/compile_commands.json"
deadline=$((SECONDS + seconds))
check() {
  local log="$work/${1//\//_}"
  # 1: a finding. 124: out of time, which is the budget's fault and not the file's.
  if timeout "$2" "$tidy" -p "$work" --quiet "$1" >"$log" 2>/dev/null; then
    echo "$1" >>"$work/clean"
  elif [ $? -eq 124 ]; then
    echo "$1" >>"$work/skipped"
  else
    cat "$log"
    echo "$1" >>"$work/found"
  fi
}
touch "$work/clean" "$work/skipped" "$work/found"
for file in "${files[@]}"; do
  left=$((deadline - SECONDS))
  if [ "$left" -le 0 ]; then
    echo "$file" >>"$work/skipped"
    continue
  fi
  check "$file" "$left" &
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
done
wait

if [ -s "$work/skipped" ]; then
  echo "tidy: no time was left for: $(tr '\n' ' ' <"$work/skipped")"
fi
echo "tidy: of ${#files[@]} changed files $(wc -l <"$work/clean") clean," \
  "$(wc -l <"$work/found") with findings, $(wc -l <"$work/skipped") NOT looked at (time)"
[ ! -s "$work/found" ]
