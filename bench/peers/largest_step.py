#!/usr/bin/env python3
"""The steps of bench/largest_step.cpp in PEFT, transformers and bitsandbytes: LoRA of rank 16 on all linear layers over
a base in NF4 with double quantization, in bf16, with gradient checkpointing. The codes are random and put in place
layer by layer, so that nothing but the steps decides whether the model fits. Exits with 77 if a package is missing.

    largest_step.py WIDTH LAYERS TOKENS STEPS THREADS

WIDTH: that of LLaMA-2's 7b, 13b or 70b. Prints the parameters, losses, seconds and the peak of the resident memory, as JSON."""
import json
import resource
import sys
import time

try:
    import bitsandbytes
    import peft
    import torch
    import transformers
    from bitsandbytes import functional
except ImportError as why:
    print(f"{sys.executable}: {why}", file=sys.stderr)
    sys.exit(77)

RANK, SCALE = 16, 0.03
WIDTHS = {"7b": dict(hidden_size=4096, intermediate_size=11008, num_attention_heads=32, num_key_value_heads=32),
          "13b": dict(hidden_size=5120, intermediate_size=13824, num_attention_heads=40, num_key_value_heads=40),
          "70b": dict(hidden_size=8192, intermediate_size=28672, num_attention_heads=64, num_key_value_heads=8)}  # fmt: skip


def quantized(linear):
    """A Linear4bit of the shape of `linear`, a module without memory."""
    shape = torch.Size((linear.out_features, linear.in_features))
    blocks = shape.numel() // 64
    scales = functional.QuantState(absmax=torch.zeros(-(-blocks // 256)), code=functional.create_dynamic_map(), blocksize=256, dtype=torch.float32)
    state = functional.QuantState(absmax=torch.zeros(blocks, dtype=torch.uint8), shape=shape, code=functional.get_4bit_type("nf4", device="cpu"),
                                  blocksize=64, quant_type="nf4", dtype=torch.bfloat16, offset=torch.tensor(SCALE), state2=scales)  # fmt: skip
    codes = torch.randint(256, (shape.numel() // 2, 1), dtype=torch.uint8)
    module = bitsandbytes.nn.Linear4bit(1, 1, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
    module.in_features, module.out_features = linear.in_features, linear.out_features
    module.weight = bitsandbytes.nn.Params4bit(codes, quant_state=state, bnb_quantized=True, quant_type="nf4", module=module)
    module.quant_state = state
    return module


def base_model(width, layers):
    config = transformers.LlamaConfig(vocab_size=32000, num_hidden_layers=layers, use_cache=False, **WIDTHS[width])
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, linear in list(part.named_children()):
                if isinstance(linear, torch.nn.Linear):
                    setattr(part, name, quantized(linear))
    for module in (model.model.embed_tokens, model.lm_head):
        module.weight = torch.nn.Parameter(torch.empty(module.weight.shape, dtype=torch.bfloat16).normal_(std=0.02), requires_grad=False)
    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.weight = torch.nn.Parameter(torch.ones(module.weight.shape, dtype=torch.bfloat16), requires_grad=False)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.is_loaded_in_4bit = True
    return model


def main():
    width, layers, tokens, steps, threads = sys.argv[1], *map(int, sys.argv[2:6])
    torch.set_num_threads(threads)
    model = base_model(width, layers)
    n_params = sum(m.in_features * m.out_features for m in model.modules() if isinstance(m, bitsandbytes.nn.Linear4bit))
    n_params += sum(p.numel() for p in model.parameters() if not isinstance(p, bitsandbytes.nn.Params4bit))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    print(f"{n_params} parameters, {sum(p.numel() for p in trained)} trained", file=sys.stderr)
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    seconds, losses = [], []
    for _ in range(steps):
        ids = torch.randint(32000, (1, tokens))
        begin = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(round(time.perf_counter() - begin, 3))
        losses.append(loss.item())
        print(f"loss {losses[-1]:.4f}, {seconds[-1]:.1f} s", file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"params": n_params, "losses": losses, "seconds": seconds, "resident": peak, "peft": peft.__version__,
                      "bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__}))  # fmt: skip


main()
