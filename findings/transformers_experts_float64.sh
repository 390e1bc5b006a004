#!/usr/bin/env bash
# A mixture of experts of transformers in float64, the usual reference for gradients.
# The good guess: it computes like every dense model does in float64. Seen with transformers 5.24.0 and torch 2.15.0: the
# default implementation of experts, grouped GEMMs, refuses float64 with an error, forward already;
# `experts_implementation="eager"` computes it. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import transformers

sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
mixture = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
tokens = torch.arange(8)[None]


def outcome(model_type, **more):
    config = transformers.AutoConfig.for_model(model_type, **sizes, **(mixture if "moe" in model_type else {}))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64, **more)
    try:
        return str(model(tokens).logits.dtype)
    except RuntimeError as error:
        return f"error: {error}"


print("transformers", transformers.__version__, "torch", torch.__version__)
seen = {"qwen3, dense": outcome("qwen3"), "qwen3_moe": outcome("qwen3_moe"),
        "qwen3_moe, eager experts": outcome("qwen3_moe", experts_implementation="eager")}
for name, what in seen.items():
    print(f"{name}: {what}")
dense, default, eager = seen.values()
as_described = dense == eager == "torch.float64" and default.startswith("error: ") and "Double" in default
sys.exit("it changed" if not as_described else 0)
PYTHON
