#!/bin/sh
# with_torch.sh SCRIPT.py OPTION...: runs a script of this folder with the first Python that has torch:
# $CLAIMS_PYTHON, the one configured in CMake, python3. Exits with 77, which ctest counts as skipped, if none
# has torch.
script=$(dirname "$0")/$1
shift
for python in "${CLAIMS_PYTHON:-}" "${ORACLE_PYTHON:-}" python3 /usr/bin/python3; do
  [ -n "$python" ] && command -v "$python" >/dev/null || continue
  code=0
  "$python" "$script" "$@" || code=$?
  [ "$code" -eq 77 ] || exit "$code"
done
echo "$script: no Python has what it needs; CLAIMS_PYTHON or -DSTRATA_ORACLE_PYTHON=PATH names one" >&2
exit 77
