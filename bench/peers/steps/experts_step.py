#!/usr/bin/env python3
"""The step of a mixture of experts in transformers: Qwen3-MoE with grouped GEMMs (its default), its own attention, the fused
AdamW of torch, in f32, or by autocast in bf16. Exits with 77 if a package is missing.

    experts_step.py STEPS THREADS [--dtype f32|autocast|bf16] [--lora RANK] [--json SIZES]

With --lora, PEFT adapts the matrices of the experts, and nothing else is trained; bf16: the model is stored in it.

Prints the seconds of each step, after an untimed one, and the peak of the resident memory, as JSON."""
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

SIZES = {"layers": 8, "hidden": 768, "heads": 12, "experts": 64, "experts_per_token": 8, "expert_ffn": 384, "vocab": 8192,
         "sequences": 4, "seq": 256}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("--dtype", choices=["f32", "autocast", "bf16"], default="f32")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK")
    parser.add_argument("--json", type=json.loads, default={}, help="other sizes")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    n = SIZES | given.json
    config = transformers.AutoConfig.for_model(
        "qwen3_moe", vocab_size=n["vocab"], hidden_size=n["hidden"], intermediate_size=n["expert_ffn"],
        num_hidden_layers=n["layers"], num_attention_heads=n["heads"], num_key_value_heads=n["heads"],
        head_dim=n["hidden"] // n["heads"], num_experts=n["experts"], num_experts_per_tok=n["experts_per_token"],
        moe_intermediate_size=n["expert_ffn"], norm_topk_prob=True, max_position_embeddings=n["seq"])  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if given.dtype == "bf16" else torch.float32)
    if given.lora > 0:
        try:
            import peft
        except ImportError as why:
            print(f"{sys.executable}: {why}", file=sys.stderr)
            sys.exit(77)
        model = peft.get_peft_model(model, peft.LoraConfig(
            task_type="CAUSAL_LM", r=given.lora, lora_alpha=given.lora, target_modules=[],
            target_parameters=["experts.gate_up_proj", "experts.down_proj"]))  # fmt: skip
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    seconds = []
    for step in range(given.steps + 1):
        tokens = torch.randint(n["vocab"], (n["sequences"], n["seq"]))
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=given.dtype == "autocast"):
            loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if step > 0:
            seconds.append(round(time.perf_counter() - begin, 6))
        print(f"loss {loss.item():.4f}, {time.perf_counter() - begin:.3f} s", file=sys.stderr)
    print(json.dumps({
        "seconds": seconds, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
        "transformers": transformers.__version__, "trained": sum(p.numel() for p in trained), "experts": model.config._experts_implementation}))  # fmt: skip


if __name__ == "__main__":
    main()
