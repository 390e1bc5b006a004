#!/usr/bin/env bash
# Installs missing packages, builds strata and trains a small language model on three novels, with its states
# in three tiers.
# Arguments are settings of the run: scripts/demo.sh train.steps=100 memory.device=64MiB
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

out=runs/demo
for (( i = 2; ; ++i )); do
  [[ -e $out ]] || break  # never overwrite earlier results
  out=runs/demo-$i
done

# Only what the demo runs is built: no tests, no benchmarks, and CUDA for the GPU at hand or not at all.
cuda=(-DSTRATA_WITH_CUDA=OFF)
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then cuda=(-DCMAKE_CUDA_ARCHITECTURES=native); fi
build=build/demo
step set-up scripts/setup.sh
step configure --log "$build/configure.log" cmake --preset release -B "$build" "${cuda[@]}" \
  -DSTRATA_BUILD_TESTS=OFF -DSTRATA_BUILD_BENCH=OFF -DSTRATA_BUILD_EXAMPLES=OFF
step build --log "$build/build.log" cmake --build "$build" -j "$jobs" --target strata_cli
strata=$build/cli/strata
step train "$strata" train --preset austen-5m --out "$out" "$@"

printf '\nThe run is in %s:\n' "$out"
show() { [[ ! -e $out/$1 ]] || printf '  %-24s %s\n' "$1" "$2"; }
show config.resolved.toml 'every setting, and where its value came from'
show plan.json 'the plan: bytes by tier, chunk size, step mode'
show metrics.jsonl 'one line per step: loss, gradient norm, tokens/s, bytes by tier and lane'
show summary.json 'the outcome: losses, peak and planned bytes, waits by cause, digest of all states'
show samples.txt 'text samples from during training'
show tokenizer.json 'the vocabulary learned from the novels'
show checkpoints 'from which a run can resume'
printf 'The command is %s; begin with: %s --help\n' "$strata" "$strata"
