#!/usr/bin/env python3
"""The step of a mixture of experts in transformers: Qwen3-MoE with grouped GEMMs (its default), its own attention, the fused
AdamW of torch, in f32, or by autocast in bf16. Exits with 77 if a package is missing.

    experts_step.py STEPS THREADS [--dtype f32|autocast|bf16] [--lora RANK [--attention] [--nf4]] [--json SIZES]

With --lora, PEFT adapts the matrices of the experts, or those of attention, and nothing else is trained; bf16: the model is stored
in it. --nf4: bitsandbytes quantizes all linear layers but the head, as load_in_4bit does, and activations are checkpointed. The
experts of transformers are parameters of no linear layer, and stay as they are.

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

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
SIZES = {"layers": 8, "hidden": 768, "heads": 12, "experts": 64, "experts_per_token": 8, "expert_ffn": 384, "vocab": 8192,
         "sequences": 4, "seq": 256}  # fmt: skip


def missing(why):
    print(f"{sys.executable}: {why}", file=sys.stderr)
    sys.exit(77)


def quantize_linear_layers(model):
    """Returns how many there are."""
    try:
        import bitsandbytes
    except ImportError as why:
        missing(why)
    linear = [(module, name, child) for module in model.modules() for name, child in module.named_children()
              if type(child) is torch.nn.Linear and child is not model.lm_head]  # fmt: skip
    for module, name, child in linear:
        small = bitsandbytes.nn.Linear4bit(child.in_features, child.out_features, bias=child.bias is not None,
                                           compute_dtype=torch.bfloat16, quant_type="nf4", device="meta")  # fmt: skip
        small.weight = bitsandbytes.nn.Params4bit(child.weight.data, requires_grad=False, quant_type="nf4", module=small)
        setattr(module, name, small.to("cpu"))
    model.is_loaded_in_4bit = True
    return len(linear)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", type=int)
    parser.add_argument("threads", type=int)
    parser.add_argument("--dtype", choices=["f32", "autocast", "bf16"], default="f32")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK")
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--nf4", action="store_true")
    parser.add_argument("--json", type=json.loads, default={}, help="other sizes")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    n, quantized = SIZES | given.json, 0
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
            missing(why)
        if given.nf4:
            quantized = quantize_linear_layers(model)
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(
            task_type="CAUSAL_LM", r=given.lora, lora_alpha=given.lora, target_modules=ATTENTION if given.attention else [],
            target_parameters=[] if given.attention else ["experts.gate_up_proj", "experts.down_proj"]))  # fmt: skip
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
        "transformers": transformers.__version__, "trained": sum(p.numel() for p in trained), "quantized": quantized, "experts": model.config._experts_implementation}))  # fmt: skip


if __name__ == "__main__":
    main()
