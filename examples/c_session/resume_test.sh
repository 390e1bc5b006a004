#!/usr/bin/env bash
# Whether a program that saved and was started again ends as one that ran through does.
#   resume_test.sh PROGRAM
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$1" 100
resumed=$("$1" 200 | tail -n 1)
rm -rf c_session.checkpoints
through=$("$1" 200 | tail -n 1)
printf '%s\n%s\n' "$resumed" "$through"
[[ $resumed == 'steps 100 to 200: loss '* && $through == 'steps 0 to 200: loss '* ]]
[[ ${resumed##*loss } == "${through##*loss }" ]]
