#!/usr/bin/env bash
# Checks strata on a machine with a GPU: the tests that need one, the same bits in all placements, losses beside the
# host's, whole steps of large models beside their forecasts, rates beside PyTorch's. Leaves gpu_verify.json, to which a
# second run with the same --out adds, and prints a table. Where there is no GPU, what needs one is skipped and the rest
# runs on the host, small.
#   scripts/gpu_verify.sh [--build DIR] [--out DIR] [--parts A,B] [--scenarios A,B] [--minutes N] [--quick]
#                                       builds the preset cuda, or takes the build in DIR; --parts: conformance, losses,
#                                       choices, placements, lifecycle, scenarios, rates, profile, peers, sanitizer;
#                                       --scenarios: those with one of these texts in their names (1.2B, 13B, layer
#                                       order); --minutes: 9.5 in all, shared among the parts; also --case-limit and
#                                       --run-limit, seconds of one test case and of one scenario's run
#   scripts/gpu_verify.sh --pack DIR    builds, and copies programs and libraries to DIR, which --build takes on a machine
#                                       that has neither compiler nor packages
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

build='' out=runs/gpu_verify pack='' options=()
while (( $# )); do
  case $1 in
    --build) build=${2:?--build takes a folder}; shift 2 ;;
    --out) out=${2:?--out takes a folder}; shift 2 ;;
    --pack) pack=${2:?--pack takes a folder}; shift 2 ;;
    --parts) options+=(--parts "${2:?--parts takes names}"); shift 2 ;;
    --scenarios) options+=(--scenarios "${2:?--scenarios takes texts}"); shift 2 ;;
    --case-limit | --run-limit) options+=("$1" "${2:?$1 takes seconds}"); shift 2 ;;
    --minutes) options+=(--minutes "${2:?--minutes takes a number}"); shift 2 ;;
    --quick) options+=(--quick); shift ;;
    *) echo 'usage: scripts/gpu_verify.sh [--build DIR] [--out DIR] [--parts A,B] [--scenarios A,B] [--minutes N] [--quick] [--pack DIR]' >&2; exit 2 ;;
  esac
done

if [[ -z $build ]]; then
  build=build/cuda
  step set-up scripts/setup.sh
  # Named, for a folder that was configured without them before keeps that.
  step configure --log build/cuda/configure.log cmake --preset cuda -DSTRATA_BUILD_TESTS=ON -DSTRATA_BUILD_BENCH=ON
  step build --log build/cuda/build.log cmake --build --preset cuda -j "$jobs"
fi
# Tests as paths below the build's folder: ctest's own files hold absolute paths, which do not travel.
mapfile -t tests <"$build/gpu_tests.txt"
programs=("${tests[@]}" bench/machine_rates cli/strata)

copy_programs() {
  mkdir -p "$pack/lib"
  cp "$build/gpu_tests.txt" "$pack/"
  git rev-parse --short HEAD >"$pack/commit.txt"
  for program in "${programs[@]}"; do
    install -D --strip "$build/$program" "$pack/$program"
    # The C library and its loader belong to the machine; everything else comes along.
    ldd "$build/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
      grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so' | xargs -r cp -n -t "$pack/lib"
  done
}
if [[ -n $pack ]]; then
  step pack copy_programs
  du -sh "$pack"
  exit 0
fi
commit=$(cat "$build/commit.txt" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown)
exec python3 scripts/gpu_verify --build "$build" --out "$out" --commit "$commit" "${options[@]}"
