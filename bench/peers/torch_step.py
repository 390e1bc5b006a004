#!/usr/bin/env python3
"""The step of gpt2_step in PyTorch: eager, in float32, with its own attention and, if available, its fused
AdamW.

    torch_step.py STEPS THREADS

Prints the seconds of each step, after an untimed one, as JSON."""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, HIDDEN, HEADS, VOCAB, POSITIONS = 12, 768, 12, 50257, 1024
SEQUENCES, SEQ = 4, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.mix = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.widen, self.narrow = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        batch, seq, _ = x.shape
        q, k, v = (part.view(batch, seq, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm_1(x)).split(HIDDEN, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).reshape(batch, seq, HIDDEN))
        return x + self.narrow(F.gelu(self.widen(self.norm_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(POSITIONS, HIDDEN)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(HIDDEN)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)  # tied
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def optimizer_of(model):
    settings = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.0}
    try:
        return torch.optim.AdamW(model.parameters(), fused=True, **settings)
    except (RuntimeError, TypeError):  # fused: only CUDA before 2.4, absent before 2.0
        return torch.optim.AdamW(model.parameters(), **settings)


def main():
    steps, threads = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = GPT2()
    optimizer = optimizer_of(model)
    seconds = []
    for step in range(steps + 1):
        tokens, targets = torch.randint(VOCAB, (2, SEQUENCES, SEQ))
        begin = time.perf_counter()
        loss = model(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(round(time.perf_counter() - begin, 6))
        print(f"step {step}: loss {loss.item():.4f}, {seconds[-1]:.3f} s", file=sys.stderr)
    print(json.dumps({"seconds": seconds[1:], "torch": torch.__version__, "fused": bool(optimizer.defaults.get("fused"))}))


main()
