#!/usr/bin/env python3
"""Measures PyTorch's bf16 GEMMs and causal attention on this GPU, in FLOP/s, for the shapes that `strata
bench --backend cuda` measures. Prints one JSON object; exits with code 1 if there is no PyTorch or no GPU for
it."""
import json
import sys

try:
    import torch
except ImportError as missing:
    sys.exit(f"no PyTorch: {missing}")
if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU")


def seconds(work, rounds=20):
    """Returns the median of `rounds` runs, after three for warm-up."""
    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return sorted(times)[rounds // 2]


gemm_rates = {}
for size in (128, 512, 2048, 8192):
    n = max(size, 4096)
    x = torch.full((size, n), 0.5, device="cuda", dtype=torch.bfloat16)
    w = torch.full((n, n), 0.5, device="cuda", dtype=torch.bfloat16)
    gemm_rates[size] = 2.0 * size * n * n / seconds(lambda: torch.nn.functional.linear(x, w))
tokens, seq, heads, head_dim = 8192, 2048, 16, 128
q, k, v = (torch.full((tokens // seq, heads, seq, head_dim), 0.5, device="cuda", dtype=torch.bfloat16, requires_grad=True)
           for _ in range(3))  # fmt: skip
attention = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
with torch.no_grad():
    forward = seconds(attention)
out = attention()
grad = torch.ones_like(out)
backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
flops = 2.0 * tokens * seq * heads * head_dim  # the causal forward: half of the FLOPs without a mask
print(json.dumps({"torch": torch.__version__, "gemm_flops_per_s": gemm_rates, "attention_flops_per_s": flops / forward,
                  "attention_backward_flops_per_s": 2.5 * flops / backward}))  # fmt: skip
