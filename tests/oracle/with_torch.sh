#!/bin/sh
# with_torch.sh SCRIPT.py OPTION...: a script of this folder by the first Python that has torch: $CLAIMS_PYTHON, what CMake
# was told, python3. 77, which is "skipped" to ctest, where none has.
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
