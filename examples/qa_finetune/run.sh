#!/bin/sh
# Question answering from a Hugging Face folder to an adapter that is served, by LoRA and by QLoRA.
#   run.sh WORK [BASE [key=value ...]]      $STRATA: the command, by default `strata`
# WORK: a new folder for all files. BASE: a Hugging Face folder; if there is none, a small model is trained on three
# novels first. key=value: more settings of the fine-tuning, such as budgets (memory.device=8GiB).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
strata=${STRATA:-strata} work=$1 base=${2:-$1/base}
[ $# -lt 2 ] && shift 1 || shift 2
mkdir "$work"

if [ ! -e "$base" ]; then
  echo "== a small model"
  "$strata" train --preset austen-5m --out "$work/pretrained" train.steps=500 train.max_time=none train.eval_every=0 \
    log.sample_every=0
  "$strata" export "$work/pretrained" --out "$base" --check
fi

echo "== questions: which novel contains a sentence"
python3 "$here/../data/make_austen_qa.py" --kind novel --form completion --count 1500 --val-count 200 \
  --out "$work/train.jsonl" --val "$work/test.jsonl"
echo "before: $(python3 "$here/accuracy.py" "$work/test.jsonl" "$strata" score "$base")"

for task in lora qlora; do
  echo "== $task"
  "$strata" train --init "$base" --task $task data.train="$work/train.jsonl" data.val="$work/test.jsonl" model.seq=128 \
    train.micro_batch=16 train.grad_accum=1 train.steps=700 optim.lr=3e-3 log.sample_every=0 --out "$work/$task" "$@"
  echo "after $task: $(python3 "$here/accuracy.py" "$work/test.jsonl" "$strata" score "$work/$task")"
  "$strata" export "$work/$task" --out "$work/$task-adapter" --check       # PEFT loads this
done

echo "== the base serves an adapter"
"$strata" generate "$base" --adapter "$work/qlora-adapter" --tokens 8 --temperature 0 \
  --prompt "Question: Which novel contains this sentence: 'Captain Wentworth was on the alert for the whole party.'?
Answer:"
