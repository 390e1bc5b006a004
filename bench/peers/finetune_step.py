#!/usr/bin/env python3
"""The step of bench/finetune_step.cpp in PEFT and transformers, with bitsandbytes' quantized base for QLoRA: LoRA of rank
16 on all linear layers of the Qwen2.5-0.5B shape with random weights, four sequences of 512 tokens, gradient
checkpointing. Exits with 77 if a package is missing.

    finetune_step.py full|nf4|nf4-dq f32|bf16 STEPS THREADS

Prints the seconds of each step, after an untimed one, and the peak of the resident memory, as JSON."""
import json
import resource
import sys
import tempfile
import time

try:
    import peft
    import torch
    import transformers
except ImportError as why:
    print(f"{sys.executable}: {why}", file=sys.stderr)
    sys.exit(77)

SEQUENCES, SEQ, RANK = 4, 512, 16
CONFIG = dict(model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
              num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=1e6)  # fmt: skip


def base_model(base, dtype):
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**CONFIG), dtype=dtype, attn_implementation="sdpa")
    if base == "full":
        return model
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as why:
        print(f"{sys.executable}: {why}", file=sys.stderr)
        sys.exit(77)
    settings = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype,
                                               bnb_4bit_use_double_quant=base == "nf4-dq")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        del model
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, quantization_config=settings, device_map="cpu")


def main():
    base, dtype, steps, threads = sys.argv[1], {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[2]], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = base_model(base, dtype)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    generator, seconds = torch.Generator().manual_seed(1), []
    for step in range(steps + 1):
        tokens = torch.randint(CONFIG["vocab_size"], (SEQUENCES, SEQ), generator=generator)
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
        print(f"step {step}: loss {loss.item():.4f}, {seconds[-1]:.3f} s", file=sys.stderr)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds[1:], "peak_bytes": peak, "torch": torch.__version__, "peft": peft.__version__,
                      "transformers": transformers.__version__}))  # fmt: skip


main()
