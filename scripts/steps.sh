# shellcheck shell=bash
# Sourced by the other scripts here, which then run in the repository's root. Each of their steps reports what
# it runs, how long that took, and where it failed.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# shellcheck disable=SC2034  # used by the scripts that source this
jobs=$(nproc)  # respects the affinity mask

# Shows every 20 seconds how far a build is whose output goes to FILE: the last "[n/m]" there.
show_progress() {
  local file=$1 start=$SECONDS now='' before=''
  while sleep 20 > /dev/null; do
    now=$(tail -c 20000 "$file" | grep -oE '^\[ *[0-9]+(/[0-9]+|%)\]' | tail -n 1)
    [[ -z $now || $now == "$before" ]] || printf '   %s after %d s\n' "$now" $((SECONDS - start))
    before=$now
  done
}

# step NAME [--log FILE] COMMAND...: --log sends the output to FILE, whose errors and end are shown after a failure. A
# linter goes on after an error, so that the end alone would not name it.
step() {
  local name=$1 log='' start=$SECONDS status=0 watcher=''
  shift
  if [[ $1 == --log ]]; then
    log=$2
    shift 2
    mkdir -p "$(dirname "$log")"
  fi
  printf '== %s: %s\n' "$name" "$*"
  [[ -z $log ]] || printf '   (its output goes to %s)\n' "$log"
  if [[ -n $log ]]; then
    show_progress "$log" 2> /dev/null &
    watcher=$!
    "$@" >"$log" 2>&1 || status=$?
    kill "$watcher" 2> /dev/null || true
    wait "$watcher" 2> /dev/null || true
  else
    "$@" || status=$?
  fi
  if (( status == 0 )); then
    printf '== %s: done in %d s\n' "$name" $((SECONDS - start))
    return 0
  fi
  if [[ -n $log ]]; then
    head -n -60 "$log" | grep -aE -m 40 'error:|error generated|^FAILED:|[*]{3}(Failed|Timeout|Exception)' >&2 || true
    tail -n 60 "$log" >&2
    printf '(the end of %s)\n' "$log" >&2
  fi
  printf '== %s FAILED after %d s with exit code %d: %s\n' "$name" $((SECONDS - start)) "$status" "$*" >&2
  return "$status"
}
