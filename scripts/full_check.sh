#!/usr/bin/env bash
# Runs the checks that are too slow for every change: long tests, all tests under ASan and UBSan,
# ThreadSanitizer, fuzz targets, line coverage, NEON under QEMU, every CUDA architecture. All of them run,
# even after a failure.
#   scripts/full_check.sh [long|asan|tsan|fuzz|coverage|neon|cuda ...]
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh" || exit 1
logs=build/full_check

build() {
  local preset=$1
  shift
  step "configure $preset" --log "$logs/$preset-configure.log" cmake --preset "$preset" "$@" &&
    step "build $preset" --log "$logs/$preset-build.log" cmake --build --preset "$preset" -j "$jobs"
}

check_long() { build release && step 'long tests' ctest --preset release -j "$jobs" -L long --no-tests=ignore; }

check_asan() {
  build asan && UBSAN_OPTIONS=print_stacktrace=1 step 'tests under ASan and UBSan' --log "$logs/asan-ctest.log" ctest --preset asan -j "$jobs" -LE long
}

check_tsan() { build tsan && step 'tests under TSan' --log "$logs/tsan-ctest.log" ctest --preset tsan -j "$jobs" -LE long; }

check_fuzz() { build fuzz && step 'fuzz targets' --log "$logs/fuzz-ctest.log" ctest --preset fuzz -j "$jobs"; }

# Only the modules that decide where data is stored; the others have measures of their own.
check_coverage() {
  build coverage && step 'tests for coverage' --log "$logs/coverage-ctest.log" ctest --preset coverage -j "$jobs" -LE long &&
    step coverage gcovr --root . --object-directory build/coverage --exclude-unreachable-branches --exclude-throw-branches \
      --filter runtime/ --filter chunk/ --filter offload/ --filter session/ --filter engine/ --sort-percentage \
      --json-summary "$logs/coverage.json" --txt
}

check_neon() {
  local status=0
  scripts/check_neon.sh || status=$?
  (( status == 0 || status == 77 ))  # 77: skipped, and the script said why
}

check_cuda() {
  if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
    echo 'full_check: cuda is skipped: no nvcc'
    return 0
  fi
  build cuda -DCMAKE_CUDA_ARCHITECTURES=all-major
}

checks=("$@")
(( $# )) || checks=(long asan tsan fuzz coverage neon cuda)
for check in "${checks[@]}"; do
  [[ $check =~ ^(long|asan|tsan|fuzz|coverage|neon|cuda)$ ]] || { echo "usage: scripts/full_check.sh [long|asan|tsan|fuzz|coverage|neon|cuda ...]" >&2; exit 2; }
done
step set-up scripts/setup.sh --dev || exit 1
failed=()
for check in "${checks[@]}"; do "check_$check" || failed+=("$check"); done
printf 'full_check: %d of %d failed: %s\n' "${#failed[@]}" "${#checks[@]}" "${failed[*]:-none}"
(( ${#failed[@]} == 0 ))
