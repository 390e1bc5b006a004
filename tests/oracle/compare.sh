#!/bin/sh
# compare.sh OPTION...: compare.py by the first Python here that has torch: $CLAIMS_PYTHON, what CMake was told, python3.
# 77, which is "skipped" to ctest, where none has.
for python in "${CLAIMS_PYTHON:-}" "${ORACLE_PYTHON:-}" python3 /usr/bin/python3; do
  [ -n "$python" ] && command -v "$python" >/dev/null || continue
  code=0
  "$python" "$(dirname "$0")/compare.py" "$@" || code=$?
  [ "$code" -eq 77 ] || exit "$code"
done
echo 'compare: no Python has torch; CLAIMS_PYTHON or -DSTRATA_ORACLE_PYTHON=PATH names one' >&2
exit 77
