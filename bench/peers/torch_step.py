#!/usr/bin/env python3
"""The step of GPT-2 in PyTorch: eager, with its own attention, and with an optimizer of torch, of DeepSpeed or of strata.
Exits with 77 if a package is missing.

    torch_step.py STEPS THREADS [--model gpt2|gpt2-medium] [--optimizer torch|deepspeed|strata] [--strata JSON]
                  [--offload JSON] [--sequences N] [--seq N] [--dtype f32|autocast|bf16] [--serve]

autocast computes in bf16 from parameters in float32; with bf16 the parameters and the optimizer's states are bf16, too.
torch is its fused AdamW, if available. JSON has the keywords of strata.optim, or those of strata.offload, to which the
model is given. Prints the seconds of each step, after
an untimed one, those of the optimizer in it, and the bytes that strata moved to and from NVMe in a step, as JSON.
--serve does so for each line on stdin, and prints a summary at the end."""
import argparse
import json
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as why:
    print(f"{sys.executable}: {why}", file=sys.stderr)
    sys.exit(77)

MODELS = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16)}  # layers, hidden size, heads
VOCAB, POSITIONS = 50257, 1024
SETTINGS = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0}


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.mix = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, _ = x.shape
        parts = self.qkv(self.norm_1(x)).chunk(3, 2)
        q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norm_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, hidden, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, hidden), nn.Embedding(POSITIONS, hidden)
        self.blocks, self.norm = nn.Sequential(*(Block(hidden, heads) for _ in range(layers))), nn.LayerNorm(hidden)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)  # tied
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def optimizer_of(given, model):
    try:
        if given.optimizer == "deepspeed":
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            return DeepSpeedCPUAdam(model.parameters(), adamw_mode=True, **SETTINGS)
        if given.optimizer == "strata":
            from strata import optim

            return optim.AdamW(model.parameters(), threads=given.threads, **SETTINGS, **json.loads(given.strata))
    except ImportError as why:
        print(f"{sys.executable}: {why}", file=sys.stderr)
        sys.exit(77)
    try:
        return torch.optim.AdamW(model.parameters(), fused=True, **SETTINGS)
    except (RuntimeError, TypeError):  # fused: only CUDA before 2.4, absent before 2.0
        return torch.optim.AdamW(model.parameters(), **SETTINGS)


class Training:
    def __init__(self, given):
        torch.manual_seed(1)
        self.given, self.model = given, GPT2(*MODELS[given.model])
        if given.dtype == "bf16":
            self.model.to(torch.bfloat16)
        if given.offload is not None:
            import strata

            strata.offload(self.model, **json.loads(given.offload))
        self.optimizer = optimizer_of(given, self.model)

    def moved(self):
        """Bytes read from and written to NVMe so far."""
        stats = self.optimizer.stats() if self.given.optimizer == "strata" else {}
        return stats.get("nvme_read_bytes", 0) + stats.get("nvme_written_bytes", 0)

    def step(self):
        """Seconds of a step, and of the optimizer in it."""
        tokens, targets = torch.randint(VOCAB, (2, self.given.sequences, self.given.seq))
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.given.dtype == "autocast"):
            loss = self.model(tokens, targets)
        self.optimizer.zero_grad()
        loss.backward()
        computed = time.perf_counter()
        self.optimizer.step()
        end = time.perf_counter()
        seconds, of_optimizer = round(end - begin, 6), round(end - computed, 6)
        print(f"loss {loss.item():.4f}, {seconds} s, {of_optimizer} s of it for the optimizer", file=sys.stderr)
        return seconds, of_optimizer

    def steps(self):
        before = self.moved()
        seconds, of_optimizer = zip(*(self.step() for _ in range(self.given.steps)))
        moved = (self.moved() - before) / self.given.steps
        return {"seconds": seconds, "optimizer_seconds": of_optimizer, "nvme_bytes": moved}

    def about(self):
        known = {"torch": torch.__version__, "optimizer": type(self.optimizer).__name__}
        known["fused"] = bool(self.optimizer.defaults.get("fused"))
        known["parameters"] = sum(param.numel() for param in self.model.parameters())
        return known | ({"plan": self.optimizer.plan()} if self.given.optimizer == "strata" else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--optimizer", choices=("torch", "deepspeed", "strata"), default="torch")
    parser.add_argument("--strata", default="{}", help="keywords of strata.optim, as JSON")
    parser.add_argument("--offload", help="keywords of strata.offload, as JSON")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--seq", type=int, default=64)
    parser.add_argument("--dtype", choices=("f32", "autocast", "bf16"), default="f32")
    parser.add_argument("--serve", action="store_true", help="measure STEPS steps for each line on stdin")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    training = Training(given)
    training.step()
    if given.serve:
        for _ in sys.stdin:
            print(json.dumps(training.steps()), flush=True)
        print(json.dumps(training.about()))
    else:
        print(json.dumps(training.steps() | training.about()))


main()
