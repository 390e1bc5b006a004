#!/usr/bin/env python3
"""Runs eight adapters of PEFT in one batch of `strata score` and `strata generate`, and each of them alone.

    adapter_batch.py --strata PATH [--family NAME ...] [--dtype f32|bf16] [--base FORMAT] [--json]

The adapters differ in rank, scale and modules. Line k of a batch goes through adapter k, and the last one through the
base itself; the other batches are the same lines with one adapter loaded, or none. A row is equal if its
log-probability is, to the last digit of a double, and the text that follows its prompt. In float32 without --base, the
log-probabilities are also compared with those of PEFT on transformers in float64. Exit code: 0 if every row is equal
and every figure within LIMIT, 1 if one is not, 77 without PyTorch, transformers and PEFT."""
import dataclasses
import json
import pathlib
import subprocess
import sys

import adapter_table  # ends the program where PEFT is missing
import adapters as peft_adapters
import make_folders
import numpy as np
import torch
from compare import PROBE_TIMEOUT_S

LIMIT = 1e-4  # the largest difference of a log-probability, per token
FAMILIES = ["gpt2", "bloom", "llama", "llama-biased", "qwen2", "qwen3"]
VOCAB = 300  # the vocabulary of the tokenizer
SETTINGS = [
    dict(r=4, lora_alpha=8),
    dict(r=1, lora_alpha=3, target_modules="all-linear"),
    dict(r=16, lora_alpha=16, target_modules="all-linear"),
    dict(r=5, lora_alpha=8, use_rslora=True),
    dict(r=13, lora_alpha=20),
    dict(r=8, lora_alpha=4, target_modules="all-linear", use_rslora=True),
    dict(r=4, lora_alpha=8, target_modules="all-linear", patterns=True),
    dict(r=2, lora_alpha=16),
]
TEXT = "It is a truth universally acknowledged, that a single man in possession of a good fortune must be in want of a wife. "


def strata(args, words, cwd):
    done = subprocess.run([str(args.strata), *map(str, words)], cwd=cwd, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S)
    if done.returncode != 0:
        raise ValueError(f"strata {' '.join(map(str, words))} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def requests(n):
    """Lines to be scored, and prompts of different lengths."""
    rng = np.random.default_rng(7)
    scored, prompts = [], []
    for k in range(n):
        ids = [int(i) for i in rng.integers(3, VOCAB - 3, 6 + 2 * k)]
        scored.append({"context_ids": ids[: 2 + k], "continuation_ids": ids[2 + k :]})
        prompts.append({"prompt": TEXT[3 * k : 4 * k + 6]})
    return scored, prompts


def lines(records, chosen):
    """chosen[i]: a name, or None for the base."""
    return "".join(json.dumps(record | {"adapter": name}) + "\n" for record, name in zip(records, chosen, strict=True))


def run(args, work, records, chosen, names):
    """[(log-probability as text, ids of the text)] of a batch in which `names` are loaded."""
    scored, prompts = records
    (work / "in.jsonl").write_text(lines(scored, chosen))
    (work / "prompts.jsonl").write_text(lines(prompts, chosen))
    more = [word for name in names for word in ("--adapter", f"{name}={name}")] + ["--batch", len(chosen)]
    more += [f"train.dtype={args.dtype}", "cpu.bf16_matmul=widened"] + ([f"train.base={args.base}"] if args.base else [])
    score = strata(args, ["score", "hf", "--in", "in.jsonl", "--context", 40, *more], work)
    text = strata(args, ["generate", "hf", "--prompts", "prompts.jsonl", "--tokens", 12, "--temperature", 0, "--json", *more], work)
    answers = [json.loads(line)["logprob"] for line in score.splitlines()]
    return list(zip(answers, [json.loads(line)["ids"] for line in text.splitlines()], strict=True))


def by_peft(model, record):
    context, continuation = record["context_ids"], record["continuation_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([context + continuation])).logits[0].log_softmax(-1)
    return sum(logits[len(context) + i - 1, token].item() for i, token in enumerate(continuation))


def compare(case, _, scratch, args):
    row = {"case": case.name, "figures": {}, "problems": []}
    try:
        fill_row(row, case, scratch, args)
    except ValueError as error:
        row["problems"].append(str(error))
    return row


def fill_row(row, case, scratch, args):
    case = dataclasses.replace(case, config=case.config | {"vocab_size": VOCAB})
    work = scratch / case.name
    make_folders.make_case(case, work, args.seed, own=False)
    (work / "text.txt").write_text(TEXT * 8)
    strata(args, ["tokenizer", "train", "text.txt", "--vocab", VOCAB, "--out", "hf/tokenizer.json"], work)
    names = [f"adapter{k}" for k in range(len(SETTINGS))]
    records = requests(len(names) + 1)
    expected = []
    for k, name in enumerate(names):
        model = peft_adapters.make_adapter(work / "hf", case.config["model_type"], SETTINGS[k], args.seed + k)
        peft_adapters.save_adapter(model, work / name)
        expected.append(by_peft(model, records[0][k]))
    expected.append(by_peft(peft_adapters.base_of(work / "hf"), records[0][-1]))
    chosen = [*names, None]
    mixed = run(args, work, records, chosen, names)
    differing = different = 0
    for k, name in enumerate(chosen):
        alone = run(args, work, records, [name] * len(chosen), [name] if name else [])
        differing += alone[k] != mixed[k]
        different += sum(alone[i][0] != mixed[i][0] for i in range(len(chosen)) if i != k)
    row["figures"]["differing rows"] = differing
    if differing:
        row["problems"].append(f"{differing} of {len(chosen)} rows differ from the batch under their adapter alone")
    if different < len(chosen) * (len(chosen) - 1):
        row["problems"].append("adapters do not change each other's rows, so that equal rows show nothing")
    if args.dtype == "f32" and not args.base:
        errors = [abs(got - want) / len(record["continuation_ids"])
                  for (got, _), want, record in zip(mixed, expected, records[0], strict=True)]  # fmt: skip
        row["figures"]["logprob"] = max(errors)
        if not max(errors) <= LIMIT:
            row["problems"].append(f"a log-probability differs from PEFT's by {max(errors):.2g} per token; the limit is {LIMIT:g}")


def main():
    parser = adapter_table.parser_of(__doc__)
    parser.set_defaults(family=FAMILIES)
    parser.add_argument("--strata", type=pathlib.Path, required=True, metavar="PATH", help="the program")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--base", choices=["int8", "nf4", "nf4-dq"], help="how strata quantizes the base (default: not)")
    args = parser.parse_args()
    args.strata = args.strata.absolute()
    return adapter_table.run("adapter_batch", args, [None], compare, {"limit": LIMIT, "adapters": len(SETTINGS)})


if __name__ == "__main__":
    sys.exit(main())
