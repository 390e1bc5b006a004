#!/usr/bin/env bash
# Installs missing packages, builds strata and runs `strata demo`: a small language model learns from novels, with its
# states in three tiers.
# Arguments are settings of the run: scripts/demo.sh train.steps=100 memory.device=64MiB
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

# Only what the demo runs is built: no tests, no benchmarks, and CUDA for the GPU at hand or not at all.
cuda=(-DSTRATA_WITH_CUDA=OFF)
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then cuda=(-DCMAKE_CUDA_ARCHITECTURES=native); fi
build=build/demo
step set-up scripts/setup.sh
step configure --log "$build/configure.log" cmake --preset release -B "$build" "${cuda[@]}" \
  -DSTRATA_BUILD_TESTS=OFF -DSTRATA_BUILD_BENCH=OFF -DSTRATA_BUILD_EXAMPLES=OFF
step build --log "$build/build.log" cmake --build "$build" -j "$jobs" --target strata_cli
strata=$build/cli/strata
step demo "$strata" demo --out runs/demo "$@"
printf 'The command is %s; begin with: %s --help\n' "$strata" "$strata"
