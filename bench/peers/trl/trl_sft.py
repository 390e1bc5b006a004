#!/usr/bin/env python3
"""Fine-tunes a Hugging Face folder on records with trl's SFTTrainer and its defaults, for bench/claims/sft_vs_trl, and
writes the folder that it learned. Prints a JSON line.
trl_sft.py MODEL RECORDS.jsonl OUT"""
import argparse
import json
import os
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import datasets
import torch
import transformers
import trl


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("records")
    parser.add_argument("out")
    given = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    with open(given.records, encoding="utf-8") as file:
        records = datasets.Dataset.from_list([json.loads(line) for line in file])
    model = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        # These settings are not the defaults: no GPU, f32, nothing kept or reported.
        config = trl.SFTConfig(output_dir=folder, use_cpu=True, bf16=False, report_to=[], save_strategy="no", disable_tqdm=True)
        trainer = trl.SFTTrainer(model=model, args=config, train_dataset=records, processing_class=tokenizer)
        steps = trainer.train().global_step
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    print(json.dumps({"steps": steps, "trl": trl.__version__, "transformers": transformers.__version__}))


main()
