#!/usr/bin/env bash
# Checks the Python package with the newest torch, transformers, accelerate, DeepSpeed and torchao: runs all tests in
# bindings/python/tests, and those in its folder newest, which need them. Checks strata/torch.hpp with that torch's
# LibTorch: compiles and runs its tests and its example.
#   scripts/torch_check.sh [DIR]
# DIR, or build/peers, keeps the environment that bench/peers/setup_peers.sh creates. STRATA_LIBRARY names a
# libstrata.so, and STRATA_COMMAND the command; if they are not set, the preset release builds them. All tests run, even
# after a failure; a test whose package could not be installed is skipped with the reason. Exit code: 0 if none failed.
set -uo pipefail
[[ $# -le 1 && ${1:-} != -* ]] || { echo 'usage: scripts/torch_check.sh [DIR]' >&2; exit 2; }
dir=$(realpath -m "${1:-$(dirname "${BASH_SOURCE[0]}")/../build/peers}")
library=${STRATA_LIBRARY:+$(realpath "$STRATA_LIBRARY")} command=${STRATA_COMMAND:+$(realpath "$STRATA_COMMAND")}
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh" || exit 1

if [[ -z $library || -z $command ]]; then
  step configure --log build/release/configure.log cmake --preset release &&
    step build --log build/release/build.log cmake --build --preset release -j "$jobs" --target strata_shared strata_cli || exit 1
  library=${library:-$PWD/build/release/capi/libstrata.so} command=${command:-$PWD/build/release/cli/strata}
fi
[[ -f $library ]] || { echo "torch_check: there is no $library" >&2; exit 1; }

setup=0
bench/peers/setup_peers.sh "$dir" || setup=$?
(( setup == 0 || setup == 3 )) || exit 1  # 3: an optional package is absent, and setup_peers.sh said which
export STRATA_LIBRARY=$library STRATA_COMMAND=$command PYTHONPATH=$PWD/bindings/python/src PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore

passed=() skipped=() failed=()
for test in bindings/python/tests/test_*.py bindings/python/tests/newest/test_*.py; do
  name=$(basename "$test" .py) log=$dir/$(basename "$test" .py).log status=0 start=$SECONDS
  "$dir/venv/bin/python" "$test" >"$log" 2>&1 || status=$?
  case $status in
    0) passed+=("$name"); verdict=passed ;;
    77) skipped+=("$name"); verdict="skipped: $(tail -n 1 "$log")" ;;
    *) failed+=("$name"); verdict="FAILED with exit code $status; the end of $log:" ;;
  esac
  printf '== %s (%d s): %s\n' "$name" $((SECONDS - start)) "$verdict"
  if (( status == 0 )); then grep -hE 'losses|MiB' "$log" | sed 's/^\.*/  /'; elif (( status != 77 )); then tail -n 40 "$log"; fi
done
# The compiler alone builds this: the CMake package of a torch for CUDA cannot be loaded where there is no CUDA toolkit.
# LibTorch of torch 2.15 is C++20, and its C++ ABI is that of GoogleTest here.
torch_home=$("$dir/venv/bin/python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
libtorch_flags=(-std=c++20 -O1 -Wall -Wextra -Werror -Icapi/include -Ibindings/libtorch/include
  -isystem "$torch_home/include" -isystem "$torch_home/include/torch/csrc/api/include")
libtorch_libraries=("$library" "-Wl,-rpath,$(dirname "$library")" "-L$torch_home/lib" "-Wl,-rpath,$torch_home/lib"
  -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10 -Wl,--as-needed -lgtest_main -lgtest -pthread)
# check_libtorch NAME SOURCE COMMAND...: compiles SOURCE to $dir/NAME and runs the command.
check_libtorch() {
  local name=$1 source=$2 log=$dir/$1.log start=$SECONDS verdict=passed
  shift 2
  if "${CXX:-c++}" "${libtorch_flags[@]}" "$source" "${libtorch_libraries[@]}" -o "$dir/$name" >"$log" 2>&1 && "$@" >>"$log" 2>&1; then
    passed+=("$name")
  else
    failed+=("$name") verdict="FAILED; the end of $log:"
  fi
  printf '== %s (%d s): %s\n' "$name" $((SECONDS - start)) "$verdict"
  if [[ $verdict == passed ]]; then grep -hE '^step ' "$log" | sed 's/^/  /'; else tail -n 40 "$log"; fi
}
check_libtorch libtorch_test tests/libtorch/torch_test.cpp "$dir/libtorch_test"
check_libtorch libtorch_trainer examples/libtorch_trainer/libtorch_trainer.cpp \
  bash examples/libtorch_trainer/resume_test.sh "$dir/libtorch_trainer" "$PWD/examples/data/austen/persuasion.txt"
printf 'torch_check: %d tests passed; skipped: %s; failed: %s\n' "${#passed[@]}" "${skipped[*]:-none}" "${failed[*]:-none}"
(( ${#failed[@]} == 0 ))
