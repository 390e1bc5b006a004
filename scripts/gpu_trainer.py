#!/usr/bin/env python3
"""Steps of a PyTorch trainer on this GPU: a decoder in bf16 under a loop of its own, with the states of AdamW (a)
on the GPU by torch, (b) in RAM by copies and torch's fused AdamW on the CPU, (c) in RAM by strata.optim, and (d) as (c) with
the parameters in RAM too, by strata.offload. Prints one JSON object with the median seconds of a step and the peak of GPU
memory of each; exits with code 1 if there is no PyTorch, no GPU or no strata."""
import argparse
import gc
import json
import statistics
import sys
import time

try:
    import torch
    import strata
except ImportError as missing:
    sys.exit(f"no {missing.name}: {missing}")
if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU")


class Block(torch.nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.qkv, self.out = torch.nn.Linear(hidden, 3 * hidden), torch.nn.Linear(hidden, hidden)
        self.up, self.down = torch.nn.Linear(hidden, 4 * hidden), torch.nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Decoder(torch.nn.Module):
    def __init__(self, layers, hidden, vocab):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocab, hidden)
        self.blocks = torch.nn.ModuleList(Block(hidden, hidden // 128) for _ in range(layers))
        self.norm, self.head = torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.cross_entropy(self.head(self.norm(x))[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class CopiedAdamW:
    """f32 masters in pinned memory; gradients are copied to them, and the values back."""

    def __init__(self, net, lr):
        self.params = list(net.parameters())
        self.masters = [torch.nn.Parameter(param.detach().float().cpu()) for param in self.params]
        self.grads = [torch.empty_like(param, device="cpu", pin_memory=True) for param in self.params]
        self.values = [torch.empty_like(grad, pin_memory=True) for grad in self.grads]
        self.adamw = torch.optim.AdamW(self.masters, lr=lr, fused=True)

    def step(self):
        for grad, param in zip(self.grads, self.params):
            grad.copy_(param.grad, non_blocking=True)
        torch.cuda.synchronize()
        for master, grad in zip(self.masters, self.grads):
            master.grad = grad.float()
        self.adamw.step()
        for value, master, param in zip(self.values, self.masters, self.params):
            value.copy_(master.detach())
            param.data.copy_(value, non_blocking=True)

    def zero_grad(self):
        for param in self.params:
            param.grad = None


def on_the_gpu(net, lr):
    return torch.optim.AdamW(net.parameters(), lr=lr, fused=True)


def by_strata(net, lr):
    return strata.optim.AdamW(net.parameters(), lr=lr)


def offloaded(net, lr):
    strata.offload(net, device=max(sum(p.numel() * 2 for p in module.parameters(recurse=False)) for module in net.modules()) * 6)
    return by_strata(net, lr)


KINDS = {"torch, states on the GPU (bf16)": on_the_gpu, "torch, f32 states in RAM": CopiedAdamW, "strata.optim, f32 states in RAM": by_strata,
         "strata.optim and strata.offload": offloaded}  # fmt: skip


def measure(make, size, steps):
    torch.manual_seed(1)
    net = Decoder(*size).to("cuda", torch.bfloat16)
    random = torch.Generator("cuda").manual_seed(2)
    began = time.perf_counter()
    optimizer, losses, seconds = make(net, 1e-4), [], []
    made = time.perf_counter() - began
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        tokens = torch.randint(0, size[2], (options.batch, options.seq), device="cuda", generator=random)
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = net(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    result = {"parameters": sum(p.numel() for p in net.parameters()), "made_s": made, "step_s": statistics.median(seconds[2:]), "seconds": seconds,
              "gpu_peak_bytes": torch.cuda.max_memory_allocated(), "losses": losses}  # fmt: skip
    if hasattr(optimizer, "close"):
        optimizer.close()
    return result


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--hidden", type=int, default=2048)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--seq", type=int, default=1024)
parser.add_argument("--steps", type=int, default=7)
options = parser.parse_args()
print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(),
                  "steps": {name: measure(make, (options.layers, options.hidden, 32000), options.steps) for name, make in KINDS.items()}}))  # fmt: skip
