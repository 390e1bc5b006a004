#!/usr/bin/env bash
# Verifies strata on a machine with a GPU: runs the tests that need one, checks that all placements give the
# same bits, and compares losses with the host's, whole steps of large models with their forecasts, and rates
# with PyTorch's. Writes gpu_verify.json, to which a second run with the same --out adds, and prints a table.
# Without a GPU, what needs one is skipped and the rest runs on the host with small models.
#   scripts/gpu_verify.sh [--build DIR] [--out DIR] [--parts A,B] [--scenarios A,B] [--minutes N] [--quick]
#        builds the preset cuda, or uses the build in DIR; --parts: conformance, losses, choices, placements,
#        lifecycle, bindings, scenarios, rates, profile, peers, sanitizer; --scenarios: those whose names contain one of
#        these texts (1.2B, 13B, layer order); --minutes: 9.5 in all by default, shared among the parts; also
#        --case-limit and --run-limit: seconds of one test case and of one scenario's run; --quarter: the list that
#        fits a quarter of an hour on a GPU, in the order of its worth, 8.2 minutes at most
#   scripts/gpu_verify.sh --pack FILE [--arch 90a] [--build DIR]
#        builds for that compute capability only (80, 90a, 100, ...) and packs programs, libraries and data
#        into one file, for a machine that has neither compiler nor packages: there, bash FILE [options as
#        above] unpacks itself and verifies
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

build='' out=runs/gpu_verify pack='' arch='' options=()
while (( $# )); do
  case $1 in
    --build) build=${2:?--build takes a folder}; shift 2 ;;
    --out) out=${2:?--out takes a folder}; shift 2 ;;
    --pack) pack=${2:?--pack takes a file}; shift 2 ;;
    --arch) arch=${2:?--arch takes a compute capability such as 90a}; shift 2 ;;
    --parts) options+=(--parts "${2:?--parts takes names}"); shift 2 ;;
    --scenarios) options+=(--scenarios "${2:?--scenarios takes texts}"); shift 2 ;;
    --case-limit | --run-limit) options+=("$1" "${2:?$1 takes seconds}"); shift 2 ;;
    --minutes) options+=(--minutes "${2:?--minutes takes a number}"); shift 2 ;;
    --quick | --quarter) options+=("$1"); shift ;;
    *) echo 'usage: scripts/gpu_verify.sh [--build DIR] [--out DIR] [--parts A,B] [--scenarios A,B] [--minutes N] [--quick] [--quarter] [--pack FILE [--arch CAPABILITY]]' >&2; exit 2 ;;
  esac
done

[[ -z $arch || $arch =~ ^[0-9]+[af]?$ ]] || { echo "gpu_verify: --arch $arch is not a compute capability such as 90a" >&2; exit 2; }

if [[ -z $build ]]; then
  build=build/cuda${arch:+-$arch}
  step set-up scripts/setup.sh
  # Must come before configuring, which looks for the headers. Without them there is no attention by cuDNN.
  step cudnn-frontend --log "$build/cudnn-frontend.log" scripts/get_cudnn_frontend.sh || {
    # What is packed must not lack the fastest attention.
    [[ -z $pack ]] || exit 1
    echo 'built without cudnn-frontend'
  }
  # Tests and benchmarks are requested explicitly, because a folder configured without them would stay so.
  step configure --log "$build/configure.log" cmake --preset cuda -B "$build" -DSTRATA_BUILD_TESTS=ON -DSTRATA_BUILD_BENCH=ON \
    ${arch:+"-DCMAKE_CUDA_ARCHITECTURES=$arch-real"}
  step build --log "$build/build.log" cmake --build "$build" -j "$jobs"
fi
if [[ -n $pack ]]; then
  scripts/gpu_verify/pack.sh "$build" "$pack"
  exit 0
fi
commit=$(cat "$build/commit.txt" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown)
exec python3 scripts/gpu_verify --build "$build" --out "$out" --commit "$commit" "${options[@]}"
