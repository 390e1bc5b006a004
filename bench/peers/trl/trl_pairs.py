#!/usr/bin/env python3
"""Trains a Hugging Face folder on pairs of answers with trl's DPOTrainer or RewardTrainer, all pairs in one batch, for
bench/claims/pairs_vs_trl. Prints a JSON line with the loss of each step, and writes the first step's gradient as
safetensors.
trl_pairs.py MODEL PAIRS.jsonl dpo|ipo|reward STEPS LR GRADIENT.safetensors [--dtype float64] [--max-norm NORM]"""
import argparse
import json
import os
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import datasets
import torch
import transformers
import trl
from safetensors.torch import save_file

BETA = 0.1


def trainer_of(task, model, tokenizer, data, folder, steps, lr, max_norm):
    of_reward = task == "reward"
    common = dict(
        output_dir=folder, per_device_train_batch_size=len(data), max_steps=steps, learning_rate=lr, lr_scheduler_type="constant",
        warmup_steps=0, weight_decay=0.0, max_grad_norm=max_norm, logging_steps=1, report_to=[], save_strategy="no", bf16=False, fp16=False,
        use_cpu=True, gradient_checkpointing=False, optim="adamw_torch", adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, disable_tqdm=True, seed=1,
        max_length=None,
    )  # fmt: skip
    if of_reward:
        return trl.RewardTrainer(model=model, args=trl.RewardConfig(disable_dropout=True, **common), train_dataset=data, processing_class=tokenizer)
    arguments = trl.DPOConfig(beta=BETA, loss_type=["ipo" if task == "ipo" else "sigmoid"], disable_dropout=True, **common)
    return trl.DPOTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)


class Losses(transformers.TrainerCallback):
    """Of each step, with all digits: the log rounds them."""

    def __init__(self, trainer):
        self.values, compute = [], trainer.compute_loss

        def keeping(*args, **kwargs):
            made = compute(*args, **kwargs)
            self.values.append(float((made[0] if isinstance(made, tuple) else made).detach()))
            return made

        trainer.compute_loss = keeping


class FirstGradient(transformers.TrainerCallback):
    def __init__(self, path):
        self.path = path

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step == 0:
            found = {name: p.grad.detach().to(torch.float64).contiguous() for name, p in model.named_parameters() if p.grad is not None}
            save_file(found, self.path)


def main():
    parser = argparse.ArgumentParser()
    for name in ("model", "pairs", "task", "steps", "lr", "gradient"):
        parser.add_argument(name)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--max-norm", type=float, default=1.0, help="of the gradient; the file has it clipped")
    asked = parser.parse_args()
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.model)
    tokenizer.pad_token = tokenizer.eos_token
    kind = transformers.AutoModelForSequenceClassification if asked.task == "reward" else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(asked.model, dtype=getattr(torch, asked.dtype), attn_implementation="eager")
    data = datasets.Dataset.from_list([json.loads(line) for line in open(asked.pairs)])
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(asked.task, model, tokenizer, data, folder, int(asked.steps), float(asked.lr), asked.max_norm)
        losses = Losses(trainer)
        trainer.add_callback(FirstGradient(asked.gradient))
        trainer.train()
    print(json.dumps({"losses": losses.values, "trl": trl.__version__, "transformers": transformers.__version__}))


if __name__ == "__main__":
    main()
