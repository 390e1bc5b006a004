# shellcheck shell=bash
# Sourced by the other scripts here, which then run in the repository's root. Each of their steps reports what
# it runs, how long that took, and where it failed.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# shellcheck disable=SC2034  # used by the scripts that source this
jobs=$(nproc)  # respects the affinity mask

# step NAME [--log FILE] COMMAND...: --log sends the output to FILE, whose end is shown after a failure.
step() {
  local name=$1 log='' start=$SECONDS status=0
  shift
  if [[ $1 == --log ]]; then
    log=$2
    shift 2
    mkdir -p "$(dirname "$log")"
  fi
  printf '== %s: %s\n' "$name" "$*"
  [[ -z $log ]] || printf '   (its output goes to %s)\n' "$log"
  if [[ -n $log ]]; then "$@" >"$log" 2>&1 || status=$?; else "$@" || status=$?; fi
  if (( status == 0 )); then
    printf '== %s: done in %d s\n' "$name" $((SECONDS - start))
    return 0
  fi
  if [[ -n $log ]]; then
    tail -n 60 "$log" >&2
    printf '(the end of %s)\n' "$log" >&2
  fi
  printf '== %s FAILED after %d s with exit code %d: %s\n' "$name" $((SECONDS - start)) "$status" "$*" >&2
  return "$status"
}
