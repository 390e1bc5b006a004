#!/usr/bin/env bash
# Sets the machine up, builds the command and trains a small language model on three novels over three tiers.
# Arguments are settings of the run: scripts/demo.sh train.steps=100 memory.device=64MiB
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

out=runs/demo
for (( i = 2; ; ++i )); do
  [[ -e $out ]] || break  # earlier results are not ours to delete
  out=runs/demo-$i
done

step set-up scripts/setup.sh
step configure --log build/release/configure.log cmake --preset release
step build --log build/release/build.log cmake --build --preset release -j "$jobs" --target strata_cli
strata=build/release/cli/strata
step train "$strata" train --preset austen-5m --out "$out" "$@"

printf '\nThe run is in %s:\n' "$out"
show() { [[ ! -e $out/$1 ]] || printf '  %-24s %s\n' "$1" "$2"; }
show config.resolved.toml 'every setting, and where its value came from'
show plan.json 'what was to be where: bytes by tier, chunk size, step mode'
show metrics.jsonl 'one line a step: loss, gradient norm, tokens/s, bytes by tier and lane'
show summary.json 'the outcome: losses, peak and planned bytes, waits by cause, digest of all states'
show samples.txt 'text that the model wrote as it learned'
show tokenizer.json 'the vocabulary learned from the novels'
show checkpoints 'from which a run can go on'
printf 'The command is %s; begin with: %s --help\n' "$strata" "$strata"
