#!/usr/bin/env python3
"""The layers of bench/recurrent_layers.cpp in transformers, on its paths for torch alone: forward and backward in f32, with the
gradients of the input and of all weights. Exits with 77 if a package is missing.

    recurrent_layers.py delta|mamba2 TOKENS THREADS

Prints the median seconds of a few runs, as JSON, for each line on stdin, and at the end of stdin what it has run."""
import json
import statistics
import sys
import time

try:
    import torch
    import transformers
    from transformers.models.mamba2 import modeling_mamba2
    from transformers.models.qwen3_next import modeling_qwen3_next
except ImportError as why:
    print(f"{sys.executable}: {why}", file=sys.stderr)
    sys.exit(77)

HIDDEN = 1024


def delta():
    config = transformers.Qwen3NextConfig(hidden_size=HIDDEN, linear_num_key_heads=8, linear_num_value_heads=16, linear_key_head_dim=128,
                                          linear_value_head_dim=128, linear_conv_kernel_dim=4, num_hidden_layers=4)  # fmt: skip
    return modeling_qwen3_next.Qwen3NextGatedDeltaNet(config, 0)


def mamba2():
    config = transformers.Mamba2Config(hidden_size=HIDDEN, num_heads=32, head_dim=64, state_size=128, n_groups=1, num_hidden_layers=1)
    return modeling_mamba2.Mamba2Mixer(config, 0)


def main():
    kind, tokens, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    transformers.utils.logging.set_verbosity_error()
    layer = {"delta": delta, "mamba2": mamba2}[kind]().train()
    x = (torch.rand(1, tokens, HIDDEN) - 0.5).mul_(0.05).requires_grad_()
    targets = torch.arange(tokens) % HIDDEN

    def seconds():
        layer.zero_grad(set_to_none=False)
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(layer(x)[0], targets)
        loss.backward()
        return time.perf_counter() - begin, float(loss)

    loss = None
    for _ in sys.stdin:
        runs = [seconds() for _ in range(3 if tokens >= 512 else 20)]
        loss = runs[-1][1]
        print(json.dumps({"seconds": statistics.median(run[0] for run in runs)}), flush=True)
    print(json.dumps({"layer": kind, "tokens": tokens, "threads": threads, "loss": loss}))


if __name__ == "__main__":
    main()
