#!/usr/bin/env bash
# Installs missing packages, builds everything and runs the tests. Arguments go to ctest, whose tests are suites, e.g.
#   scripts/test.sh -R Optimizer
# STRATA_TEST_PRESET selects the preset; release uses CUDA if the toolkit is found.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"
preset=${STRATA_TEST_PRESET:-release}
# The programs under test reject STRATA_* variables that they do not know.
unset STRATA_TEST_PRESET

step set-up scripts/setup.sh
step configure --log "build/$preset/configure.log" cmake --preset "$preset"
step build --log "build/$preset/build.log" cmake --build --preset "$preset" -j "$jobs"
# Long tests run in scripts/full_check.sh.
results=$PWD/build/$preset/results
rm -rf "$results"
step test ctest --preset "$preset" -j "$jobs" -LE long "$@"
cmake "-DRESULTS=$results" -P tests/build/count_cases.cmake
# Every test that docs/faults.md names must have run, unless sanitizers skip it or arguments select others.
absent=''
[[ -e build/$preset/tests/runtime/fake_cuda_test ]] || absent=fake_cuda_test
# Containers often may not mount the small file systems of some of them.
mounts=ON
unshare --mount mount --make-rprivate / 2> /dev/null || mounts=OFF
if (( $# == 0 )) && [[ ! $preset =~ ^(asan|tsan)$ ]]; then
  step 'fault table' cmake "-DSOURCE=$PWD" "-DRESULTS=$results" "-DABSENT=$absent" "-DMOUNTS=$mounts" \
    -P tests/build/fault_table.cmake
fi
