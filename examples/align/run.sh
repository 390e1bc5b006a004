#!/bin/sh
# From a model that continues sentences to one that prefers those about women: by a reward model and PPO, by GRPO, and by DPO.
#   run.sh WORK [key=value ...]      $STRATA: the command, by default `strata`
# WORK: a new folder for all files. key=value: more settings of every run, such as budgets (memory.device=1GiB).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
strata=${STRATA:-strata} work=$1
shift
mkdir "$work"
last() { sed -n "s/.*\"$2\": \([-0-9.e]*\).*/\1/p" "$work/$1/metrics.jsonl" | tail -1; }
first() { sed -n "s/.*\"$2\": \([-0-9.e]*\).*/\1/p" "$work/$1/metrics.jsonl" | head -1; }

python3 "$here/../data/make_austen_pairs.py" --pairs "$work/pairs.jsonl" --val "$work/val.jsonl" --texts "$work/texts.jsonl" \
  --prompts "$work/prompts.jsonl"

echo "== a small model, and supervised fine-tuning"
"$strata" train --preset austen-5m --out "$work/pretrained" train.steps=200 train.max_time=none train.eval_every=0 \
  log.sample_every=0 "$@"
"$strata" export "$work/pretrained" --out "$work/base"
"$strata" train --init "$work/base" --task sft data.train="$work/texts.jsonl" model.seq=96 train.micro_batch=8 train.steps=150 \
  optim.lr=1e-3 log.sample_every=0 --out "$work/sft" "$@"
"$strata" export "$work/sft" --out "$work/sft_hf"

echo "== a reward model"
"$strata" train --init "$work/sft_hf" --task reward data.train="$work/pairs.jsonl" data.val="$work/val.jsonl" model.seq=96 \
  train.micro_batch=8 train.steps=150 optim.lr=1e-3 train.eval_every=150 train.eval_batches=100 adapter.method=lora \
  adapter.targets=all-linear --out "$work/reward" "$@"
"$strata" eval "$work/reward"

policy="data.train=$work/prompts.jsonl model.seq=96 train.micro_batch=8 align.max_prompt=24 align.max_tokens=24 optim.lr=1e-3
  optim.warmup=0 optim.schedule=constant adapter.method=lora adapter.targets=all-linear log.sample_every=10
  align.reward=model:$work/reward"
for task in ppo grpo; do
  echo "== $task"
  "$strata" train --init "$work/sft_hf" --task $task $policy train.steps=40 --out "$work/$task" "$@"
  echo "$task: reward $(first $task reward) (deviation $(first $task reward_deviation)) -> $(last $task reward) at a KL of $(last $task kl) nats a token"
done

echo "== dpo"
"$strata" train --init "$work/sft_hf" --task dpo data.train="$work/pairs.jsonl" data.val="$work/val.jsonl" model.seq=96 \
  train.micro_batch=8 train.steps=201 optim.lr=5e-4 train.eval_every=100 train.eval_batches=100 --out "$work/dpo" "$@"
echo "dpo: accuracy $(last dpo val_accuracy) on pairs that it has not seen"
