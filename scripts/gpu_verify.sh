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
#   scripts/gpu_verify.sh --pack FILE [--arch 90a] [--build DIR]
#                                       builds for that compute capability alone (80, 90a, 100, ...), and makes one file of
#                                       programs, libraries and data, for a machine that has neither compiler nor packages:
#                                       there, bash FILE [options as above] unpacks itself and verifies
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

build='' out=runs/gpu_verify pack='' arch='' options=()
while (( $# )); do
  case $1 in
    --build) build=${2:?--build takes a folder}; shift 2 ;;
    --out) out=${2:?--out takes a folder}; shift 2 ;;
    --pack) pack=${2:?--pack takes a file}; shift 2 ;;
    --arch) arch=${2:?--arch takes a compute capability, as 90a}; shift 2 ;;
    --parts) options+=(--parts "${2:?--parts takes names}"); shift 2 ;;
    --scenarios) options+=(--scenarios "${2:?--scenarios takes texts}"); shift 2 ;;
    --case-limit | --run-limit) options+=("$1" "${2:?$1 takes seconds}"); shift 2 ;;
    --minutes) options+=(--minutes "${2:?--minutes takes a number}"); shift 2 ;;
    --quick) options+=(--quick); shift ;;
    *) echo 'usage: scripts/gpu_verify.sh [--build DIR] [--out DIR] [--parts A,B] [--scenarios A,B] [--minutes N] [--quick] [--pack FILE [--arch CAPABILITY]]' >&2; exit 2 ;;
  esac
done

[[ -z $arch || $arch =~ ^[0-9]+[af]?$ ]] || { echo "gpu_verify: --arch $arch is no compute capability, as 90a" >&2; exit 2; }

if [[ -z $build ]]; then
  build=build/cuda${arch:+-$arch}
  step set-up scripts/setup.sh
  # Before configuring, which looks for it. Without it the build has no attention by cuDNN.
  step cudnn-frontend --log "$build/cudnn-frontend.log" scripts/get_cudnn_frontend.sh || echo 'built without cudnn-frontend'
  # Named, for a folder that was configured without them before keeps that.
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
