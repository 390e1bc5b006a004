#!/usr/bin/env bash
# Runs the claims in bench/claims/ one after the other and prints a table.
#   bench/claims.sh [--build DIR] [--list] [NAME...]
# Exit code: 0 if no claim fails, 1 if one does not hold or is broken. A claim whose hardware or peer is
# absent has no verdict: it is not a failure and is counted separately.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/steps.sh"

build='' names=()
while (( $# )); do
  case $1 in
    --build) build=${2:?--build takes a folder}; shift 2 ;;
    --list) find bench/claims -maxdepth 1 -type f -executable -printf '%f\n' | sort; exit 0 ;;
    -*) echo 'usage: bench/claims.sh [--build DIR] [--list] [NAME...]' >&2; exit 2 ;;
    *) names+=("$1"); shift ;;
  esac
done
(( ${#names[@]} )) || mapfile -t names < <(find bench/claims -maxdepth 1 -type f -executable -printf '%f\n' | sort)
for name in "${names[@]}"; do
  [[ -x bench/claims/$name ]] || { echo "claims: there is no bench/claims/$name; --list shows what there is" >&2; exit 2; }
done
command -v python3 >/dev/null || { echo 'claims: python3 is missing; scripts/setup.sh installs it' >&2; exit 1; }

if [[ -z $build ]]; then
  build=build/release
  step set-up scripts/setup.sh
  step configure --log build/release/configure.log cmake --preset release
  step build --log build/release/build.log cmake --build --preset release -j "$jobs"
fi
# Not STRATA_*: strata rejects unknown variables with that prefix.
CLAIMS_BUILD=$(realpath "$build")
export CLAIMS_BUILD CLAIMS_BINARY=$CLAIMS_BUILD/cli/strata
results=$build/claims.jsonl
: >"$results"

# Prints the table row of one line of JSON. Exit code: 0 if the claim holds, 1 if not, 2 if the line does not
# conform to bench/claims/README.md, 3 if there is no verdict.
row() {
  python3 - "$1" "$2" "$3" <<'PYTHON'
import json, sys
name, path, code = sys.argv[1:]
with open(path, encoding="utf-8") as file:
    lines = [line for line in file.read().splitlines() if line.strip()]
try:
    if code not in ("0", "1"):
        raise ValueError(f"exit code {code}")
    if len(lines) != 1:
        raise ValueError(f"{len(lines)} lines on stdout, not one")
    claim = json.loads(lines[0])
    missing = [key for key in ("claim", "value", "unit", "bar", "holds", "detail") if key not in claim]
    if missing:
        raise ValueError("lacks " + ", ".join(missing))
    if claim["holds"] is not None and not isinstance(claim["holds"], bool):
        raise ValueError(f"holds is {claim['holds']!r}, not true, false or null")
    if not isinstance(claim["detail"], dict):
        raise ValueError(f"detail is {claim['detail']!r}, not an object")
    if claim["holds"] is None and not claim["detail"].get("skip_reason"):
        raise ValueError("holds is null, and no skip_reason in detail names the hardware or the peer that is absent")
    if (code == "1") != (claim["holds"] is False):
        raise ValueError(f"exit code {code} and holds {claim['holds']}")
except ValueError as error:
    print(f"{name:<28} {'BROKEN':<10} {error}")
    sys.exit(2)
verdict = {True: "holds", False: "DOES NOT", None: "no verdict"}[claim["holds"]]
value = "-" if claim["value"] is None else claim["value"]
value = f"{value:.4g}" if isinstance(value, float) else str(value)
print(f"{name:<28} {verdict:<10} {value} {claim['unit']}  (bar: {claim['bar']})")
if claim["holds"] is False:
    print(f"{'':<28} {claim['detail']}")
if claim["holds"] is None:
    print(f"{'':<28} {claim['detail']['skip_reason']}")
sys.exit({True: 0, False: 1, None: 3}[claim["holds"]])
PYTHON
}

# The number of claims for each exit code of row.
count=(0 0 0 0)
for name in "${names[@]}"; do
  log=$build/claim-$name
  code=0 verdict=0
  "bench/claims/$name" >"$log.out" 2>"$log.err" || code=$?
  row "$name" "$log.out" "$code" || verdict=$?
  (( verdict <= 3 )) || verdict=2  # row itself failed
  count[verdict]=$((count[verdict] + 1))
  tail -n 5 "$log.err" >&2
  cat "$log.out" >>"$results"
done
printf 'claims: %d run: %d hold, %d do not, %d broke; %d without a verdict (hardware or a peer is absent); the lines are in %s\n' \
  "${#names[@]}" "${count[@]}" "$results"
(( count[1] + count[2] == 0 ))
