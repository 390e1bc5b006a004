#!/usr/bin/env python3
"""Trains a Hugging Face folder on answers that strata sampled, for bench/claims/policy_vs_trl: by the loss of trl's
GRPOTrainer, or by PPO's losses of policy and critic as trl's PPOTrainer has them. All answers are in one batch, over
and over, and all parameters are trained with AdamW. Prints a JSON line with the losses of each step, and writes the
first step's gradients as safetensors.
trl_policy.py MODEL ROLLOUTS.bin grpo|dr_grpo|dapo|ppo STEPS LR GRADIENT.safetensors [--dtype float64] [--max-norm NORM]
              [--critic CHECKPOINT.safetensors]"""
import argparse
import json
import os
import struct
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import datasets
import torch
import transformers
import trl
from safetensors.torch import load_file, save_file

BETA, CLIP, LAMBDA, MAX_TOKENS = 0.1, 0.2, 0.95, 12
VALUES = ("old_log_probs", "reference", "advantages", "weights", "old_values", "returns", "entropies")


def read_rollouts(path):
    """The answers in a checkpoint of strata: prompt, chosen tokens, reward, and what is known of each token."""
    data = load_file(path)["rollouts"].numpy().tobytes()
    magic, _, n, _ = struct.unpack_from("<8sqQ16s", data)
    assert magic == b"strataA1", magic
    at, rollouts = 40, []
    for _ in range(n):
        prompt, n_prompt, n_ids, stop, reward = struct.unpack_from("<IIIid", data, at)
        ids = list(struct.unpack_from(f"<{n_ids}i", data, at + 24))
        at += 24 + 4 * n_ids
        rollouts.append({"prompt": ids[:n_prompt], "answer": ids[n_prompt:] + ([stop] if stop >= 0 else []), "reward": reward, "group": prompt})
    tokens = sum(len(r["answer"]) for r in rollouts)
    values = {name: struct.unpack_from(f"<{tokens}f", data, at + 4 * tokens * i) for i, name in enumerate(VALUES)}
    return rollouts, values


def batch_of(rollouts, pad):
    """As trl pads: prompts on the left, answers on the right."""
    width, length = max(len(r["prompt"]) for r in rollouts), max(len(r["answer"]) for r in rollouts)
    row = lambda values, n, left: [pad] * (n - len(values)) + values if left else values + [pad] * (n - len(values))
    mask = lambda values, n, left: [0] * (n - len(values)) + [1] * len(values) if left else [1] * len(values) + [0] * (n - len(values))
    table = lambda make, key, n, left: torch.tensor([make(r[key], n, left) for r in rollouts])
    return {"prompt_ids": table(row, "prompt", width, True), "prompt_mask": table(mask, "prompt", width, True),
            "completion_ids": table(row, "answer", length, False), "completion_mask": table(mask, "answer", length, False)}  # fmt: skip


def spread(batch, values, dtype):
    """Values of tokens, one answer after the other, where the batch has the tokens."""
    out = torch.zeros(batch["completion_mask"].shape, dtype=dtype)
    out[batch["completion_mask"].bool()] = torch.tensor(values, dtype=dtype)
    return out


def advantages_of(rollouts, kind, samples):
    rewards = torch.tensor([r["reward"] for r in rollouts], dtype=torch.float64).view(-1, samples)
    centred = rewards - rewards.mean(1, keepdim=True)
    return (centred if kind == "dr_grpo" else centred / (rewards.std(1, keepdim=True) + 1e-4)).view(-1)


def hidden_states(model, batch):
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    hidden = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
    return hidden[:, batch["prompt_ids"].shape[1] - 1 : -1], ids


def log_probs(model, batch):
    hidden, _ = hidden_states(model, batch)
    return torch.log_softmax(model.lm_head(hidden), -1).gather(-1, batch["completion_ids"].unsqueeze(-1)).squeeze(-1)


class Grpo:
    def __init__(self, asked, model, tokenizer, batch, rollouts):
        data = datasets.Dataset.from_list([{"prompt": "x"}] * len(rollouts))
        samples = next(n for n in range(1, len(rollouts) + 1) if n == len(rollouts) or rollouts[n]["group"] != rollouts[0]["group"])
        self.folder = tempfile.TemporaryDirectory()
        arguments = trl.GRPOConfig(
            output_dir=self.folder.name, per_device_train_batch_size=len(rollouts), num_generations=samples, max_completion_length=MAX_TOKENS, beta=BETA, epsilon=CLIP, use_bias_correction_kl=False,
            loss_type=asked.task, scale_rewards="none" if asked.task == "dr_grpo" else "group", report_to=[], use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False,
            disable_dropout=True, temperature=1.0,
        )  # fmt: skip
        self.trainer = trl.GRPOTrainer(model=model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=arguments, train_dataset=data, processing_class=tokenizer)
        self.trainer.current_gradient_accumulation_steps = 1
        with torch.no_grad():
            old = log_probs(model, batch)
        self.inputs = dict(batch, advantages=advantages_of(rollouts, asked.task, samples).to(old.dtype), old_per_token_logps=old, ref_per_token_logps=old,
                           num_items_in_batch=batch["completion_mask"].sum())  # fmt: skip
        self.parts = {"policy": model}

    def losses(self):
        return {"policy": self.trainer._compute_loss(self.parts["policy"], self.inputs)}


class Ppo:
    """With the reference's penalty in the rewards, which the first iteration does not have."""

    def __init__(self, asked, model, batch, rollouts):
        self.mask = batch["completion_mask"].bool()
        self.batch = batch
        tensors = load_file(asked.critic)
        critic = type(model).from_pretrained(asked.model, dtype=model.dtype, attn_implementation="eager")
        self.score = torch.nn.Parameter(tensors["critic.score.weight"].to(model.dtype))
        critic.register_parameter("critic_score", self.score)
        self.parts = {"policy": model, "critic": critic}
        with torch.no_grad():
            self.old, self.old_values = log_probs(model, batch), self.values()
        rewards = torch.zeros_like(self.old)
        ends = self.mask.sum(1) - 1
        rewards[torch.arange(len(rollouts)), ends] += torch.tensor([r["reward"] for r in rollouts], dtype=self.old.dtype)
        advantages, last = torch.zeros_like(self.old), torch.zeros(len(rollouts), dtype=self.old.dtype)
        for t in reversed(range(self.old.shape[1])):
            inside = self.mask[:, t]
            following = torch.where(t + 1 <= ends, self.old_values[:, min(t + 1, self.old.shape[1] - 1)], 0)
            delta = rewards[:, t] + following - self.old_values[:, t]
            last = torch.where(inside, delta + LAMBDA * last, 0)
            advantages[:, t] = last
        self.returns = advantages + self.old_values
        chosen = advantages[self.mask]
        self.advantages = (advantages - chosen.mean()) / (chosen.std() + 1e-8)

    def values(self):
        hidden, _ = hidden_states(self.parts["critic"], self.batch)
        return (hidden @ self.score.view(-1, 1)).squeeze(-1)

    def losses(self):
        mean = lambda x: x[self.mask].mean()
        ratio = torch.exp(log_probs(self.parts["policy"], self.batch) - self.old)
        policy = mean(torch.max(-self.advantages * ratio, -self.advantages * ratio.clamp(1 - CLIP, 1 + CLIP)))
        values = self.values()
        clipped = torch.clamp(values, self.old_values - CLIP, self.old_values + CLIP)
        return {"policy": policy, "critic": 0.5 * mean(torch.max((values - self.returns) ** 2, (clipped - self.returns) ** 2))}


def main():
    parser = argparse.ArgumentParser()
    for name in ("model", "rollouts", "task", "steps", "lr", "gradient"):
        parser.add_argument(name)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--max-norm", type=float, default=1.0, help="of each gradient; the file has it clipped")
    parser.add_argument("--critic", help="param.safetensors of a checkpoint whose critic is as it began")
    asked = parser.parse_args()
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.model)
    tokenizer.pad_token = tokenizer.eos_token
    model = transformers.AutoModelForCausalLM.from_pretrained(asked.model, dtype=getattr(torch, asked.dtype), attn_implementation="eager")
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    rollouts, _ = read_rollouts(asked.rollouts)
    batch = batch_of(rollouts, tokenizer.pad_token_id)
    assert batch["prompt_mask"].all(), "prompts of several lengths: trl pads them without moving positions"
    task = Ppo(asked, model, batch, rollouts) if asked.task == "ppo" else Grpo(asked, model, tokenizer, batch, rollouts)
    optimizers = {name: torch.optim.AdamW(part.parameters(), lr=float(asked.lr), betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0) for name, part in task.parts.items()}
    found = {name: [] for name in task.parts}
    for step in range(int(asked.steps)):
        losses = task.losses()
        for name, part in task.parts.items():
            found[name].append(losses[name].item())
            optimizers[name].zero_grad()
            losses[name].backward()
            torch.nn.utils.clip_grad_norm_(part.parameters(), asked.max_norm)
        if step == 0:
            gradients = {f"{which}.{name}": p.grad.detach().to(torch.float64).contiguous() for which, part in task.parts.items() for name, p in part.named_parameters() if p.grad is not None}
            save_file(gradients, asked.gradient)
        for optimizer in optimizers.values():
            optimizer.step()
    print(json.dumps({"losses": found, "trl": trl.__version__, "transformers": transformers.__version__}))


if __name__ == "__main__":
    main()
