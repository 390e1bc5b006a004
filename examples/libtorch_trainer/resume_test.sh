#!/usr/bin/env bash
# Usage: resume_test.sh LIBTORCH_TRAINER TEXT. A run in RAM, and one on NVMe that is resumed, must print the same losses,
# which fall.
set -euo pipefail
trainer=$1 text=$2 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
whole=$("$trainer" "$text" whole 200)
first=$("$trainer" "$text" parts 100 "$work/nvme")
second=$("$trainer" "$text" parts 200 "$work/nvme")
echo "$whole"
echo "$second"
grep -q 'resumed from parts/step-00000100' <<<"$second"
losses() { sed -n 's/^step *\([0-9]*\) .* loss/\1/p'; }
[[ $(losses <<<"$whole") == $(printf '%s\n%s\n' "$first" "$second" | losses) ]]
read -r _ begin _ < <(losses <<<"$whole" | head -n 1 | xargs)
read -r _ end _ < <(losses <<<"$whole" | tail -n 1 | xargs)
awk "BEGIN { exit !($end < $begin - 0.3) }"
echo "the losses are the same and fall"
