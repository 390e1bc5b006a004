#!/usr/bin/env python3
"""The step of a Qwen3.5 without experts in transformers, three of whose four layers are gated delta nets, in f32, or by autocast in
bf16, with the fused AdamW of torch. Exits with 77 if a package is missing.

    hybrid_step.py STEPS THREADS CONFIG [--dtype f32|autocast] [--seq N]

CONFIG is a config.json. Prints the seconds of each step, after an untimed one, and the peak of the resident memory, as JSON."""
import argparse
import json
import resource
import sys
import time

try:
    import torch
    import transformers
except ImportError as why:
    print(f"{sys.executable}: {why}", file=sys.stderr)
    sys.exit(77)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("config", type=transformers.AutoConfig.from_pretrained)
    parser.add_argument("--dtype", choices=["f32", "autocast"], default="f32")
    parser.add_argument("--seq", type=int, default=1024)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(given.config, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    seconds = []
    for step in range(given.steps + 1):
        tokens = torch.randint(given.config.vocab_size, (1, given.seq))
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=given.dtype == "autocast"):
            loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step > 0:
            seconds.append(round(time.perf_counter() - begin, 6))
        print(f"loss {loss.item():.4f}, {time.perf_counter() - begin:.3f} s", file=sys.stderr)
    print(json.dumps({
        "seconds": seconds, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
        "transformers": transformers.__version__}))  # fmt: skip


if __name__ == "__main__":
    main()
