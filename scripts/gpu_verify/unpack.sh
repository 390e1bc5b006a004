#!/usr/bin/env bash
# strata @COMMIT@, packed by scripts/gpu_verify.sh --pack: unpacks itself to ./strata-@COMMIT@, or to DIR, and
# verifies strata there.
#   bash THIS [--into DIR] [--unpack-only] [options of scripts/gpu_verify.sh]; --out: ./gpu_verify by default
set -euo pipefail
self=${BASH_SOURCE[0]} into=strata-@COMMIT@ only='' out=$PWD/gpu_verify options=()
fail() { printf 'unpack: %s\n' "$*" >&2; exit 1; }
while (( $# )); do
  case $1 in
    --into) into=${2:?--into takes a folder}; shift 2 ;;
    --unpack-only) only=1; shift ;;
    --out) out=${2:?--out takes a folder}; [[ $out == /* ]] || out=$PWD/$out; shift 2 ;;
    *) options+=("$1"); shift ;;
  esac
done
payload() { tail -n +"$(awk '/^#PAYLOAD$/ {print NR + 1; exit}' "$self")" "$self"; }

if [[ $(cat "$into/unpacked" 2>/dev/null) != @DIGEST@ ]]; then
  found=$(payload | sha256sum)
  [[ ${found%% *} == @DIGEST@ ]] || fail "$self is damaged: its payload has the SHA-256 ${found%% *}, not @DIGEST@"
  rm -rf "$into"
  mkdir -p "$into"
  if command -v xz >/dev/null && command -v tar >/dev/null; then
    payload | xz -dc | tar -xf - -C "$into" --strip-components=1
  elif command -v python3 >/dev/null; then
    payload | python3 -c '
import os, sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz") as packed:
    for member in packed:
        member.name = member.name.partition("/")[2]
        if member.name:
            packed.extract(member, sys.argv[1])
' "$into"
  else
    fail 'unpacking needs tar and xz, or python3'
  fi
  echo @DIGEST@ >"$into/unpacked"  # written last, so that an interrupted unpacking is repeated
fi
[[ -z $only ]] || { echo "unpacked to $into"; exit 0; }
command -v python3 >/dev/null || fail "python3 is missing, which scripts/gpu_verify.sh needs; it is unpacked to $into"
exec bash "$into/scripts/gpu_verify.sh" --build build --out "$out" "${options[@]}"
#PAYLOAD
