#!/usr/bin/env bash
# target_modules="all-linear" of PEFT on two mixtures of experts whose modules have the same classes of layers.
# The good guess: both get adapters of their linear layers alone, of the rank that was asked for, since the experts of
# transformers 5 are parameters of no linear layer. Seen with PEFT 0.21.2, transformers 5.24.0 and torch 2.15.0: Qwen3-MoE
# gets adapters of its experts and of its router, those of gates and ups with twice the rank and alpha; Qwen2-MoE gets none of
# them, but one of the gate of its shared expert. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0 peft==0.21.2
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import peft
import torch
import transformers

sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2)
mixture = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=24)


def adapted(model_type):
    config = transformers.AutoConfig.for_model(model_type, **sizes, **mixture)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    ranks = {}
    for name, parameter in model.named_parameters():
        if "lora_A" in name and ".mlp." in name:
            ranks[name.split(".mlp.")[1].split(".lora_A")[0]] = parameter.shape[0]
    return ranks


print("peft", peft.__version__, "transformers", transformers.__version__, "torch", torch.__version__)
qwen3, qwen2 = adapted("qwen3_moe"), adapted("qwen2_moe")
print("rows of A in the MLP of Qwen3-MoE:", qwen3)
print("rows of A in the MLP of Qwen2-MoE:", qwen2)
as_described = (qwen3 == {"gate": 4, "experts.base_layer": 6 * 8, "experts": 6 * 4} and "shared_expert_gate" in qwen2
                and not any("experts" in name or name == "gate" for name in qwen2))
sys.exit("it changed" if not as_described else 0)
PYTHON
