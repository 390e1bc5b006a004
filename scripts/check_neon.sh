#!/usr/bin/env bash
# Tests the NEON SIMD kernels: cross-compiles simd, cpuopt, state_kernels, kernels and their tests for AArch64
# (tests/aarch64) and runs them under QEMU. Installs nothing: if packages are missing, it names them and exits with 77.
#   scripts/check_neon.sh
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh" || exit 1
logs=build/check_neon
build=build/aarch64

missing=()
command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
[[ -e /usr/src/googletest/CMakeLists.txt ]] || missing+=(googletest)
[[ -e /usr/include/eigen3/Eigen ]] || missing+=(libeigen3-dev)
if (( ${#missing[@]} )); then
  echo "check_neon: skipped; it needs the packages ${missing[*]}"
  exit 77
fi

step 'configure for AArch64' --log "$logs/configure.log" cmake -S tests/aarch64 -B "$build" -G Ninja \
  --toolchain "$PWD/cmake/aarch64-linux-gnu.cmake" -DCMAKE_BUILD_TYPE=Release -DSTRATA_BUILD_TESTS=ON -DSTRATA_WERROR=ON &&
  step 'build for AArch64' --log "$logs/build.log" cmake --build "$build" -j "$jobs" || exit 1
status=0
step 'tests under QEMU' --log "$logs/tests.log" ctest --test-dir "$build" -j "$jobs" --output-on-failure --no-tests=error || status=1
printf 'check_neon: simd, cpuopt, state_kernels and kernels, scalar and NEON kernels, under QEMU: %s\n' "$(grep 'tests passed' "$logs/tests.log")"
exit "$status"
