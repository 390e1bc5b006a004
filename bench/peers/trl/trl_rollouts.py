#!/usr/bin/env python3
"""Times transformers.generate and iterations of trl's GRPOTrainer for bench/claims/rollouts_vs_trl, on the CPU. Prints a JSON
line with tokens/s of generate at a batch of 8, and the median seconds of an iteration without the first one.
trl_rollouts.py MODEL PROMPTS.jsonl DTYPE TOKENS ITERATIONS"""
import json
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import datasets
import torch
import transformers
import trl


def load(model, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype), attn_implementation="sdpa")


def generate(model, tokenizer, prompts, tokens):
    ids = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    seconds = []
    for _ in range(3):
        begin = time.monotonic()
        made = model.generate(**ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=True, temperature=1.0, top_k=0, pad_token_id=tokenizer.eos_token_id)
        seconds.append(time.monotonic() - begin)
    return (made.shape[1] - ids["input_ids"].shape[1]) * len(prompts) / min(seconds)


class Ends(transformers.TrainerCallback):
    def __init__(self):
        self.at = []

    def on_step_end(self, args, state, control, **kwargs):
        self.at.append(time.monotonic())


def iterations(model, tokenizer, prompts, tokens, n):
    with tempfile.TemporaryDirectory() as folder:
        arguments = trl.GRPOConfig(output_dir=folder, per_device_train_batch_size=8, num_generations=2, max_completion_length=tokens, max_steps=n, beta=0.04, learning_rate=1e-6,
                                   lr_scheduler_type="constant", use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False, report_to=[], save_strategy="no", logging_steps=1000,
                                   disable_tqdm=True, temperature=1.0, generation_kwargs={"min_new_tokens": tokens, "top_k": 0})  # fmt: skip
        data = datasets.Dataset.from_list([{"prompt": text} for text in prompts * 8])
        reward = lambda completions, **_: [sum(c in "aeiou" for c in text) / max(1, len(text)) for text in completions]
        trainer = trl.GRPOTrainer(model=model, reward_funcs=reward, args=arguments, train_dataset=data, processing_class=tokenizer)
        ends = Ends()
        trainer.add_callback(ends)
        trainer.train()
    return statistics.median(b - a for a, b in zip(ends.at, ends.at[1:]))


def main():
    folder, prompts, dtype, tokens, n = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    texts = [json.loads(line)["prompt"] for line in open(prompts)]
    batch = [text for text in texts for _ in range(2)]
    rate = generate(load(folder, dtype).eval(), tokenizer, batch, tokens)
    print(json.dumps({"generate_tokens_per_s": rate, "iteration_s": iterations(load(folder, dtype), tokenizer, texts, tokens, n), "trl": trl.__version__,
                      "transformers": transformers.__version__, "torch": torch.__version__}))  # fmt: skip


main()
