#!/usr/bin/env bash
# load_in_4bit of bitsandbytes on a mixture of experts in transformers.
# The good guess: nearly all of the model is in 4 bits, as for a dense one, so that it takes about a quarter of the memory. Seen with
# bitsandbytes 0.50.2, transformers 5.24.0 and torch 2.15.0: the experts of a layer are parameters of no linear layer, and stay in
# bf16 without a word: 87 % of the parameters of this small Qwen3-MoE, 95 % of Qwen3-30B-A3B's. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0 bitsandbytes==0.50.2 accelerate==1.15.0
"$folder/venv/bin/python" - "$folder/model" <<'PYTHON'
import sys

import bitsandbytes
import torch
import transformers

config = transformers.Qwen3MoeConfig(
    vocab_size=64, hidden_size=256, intermediate_size=768, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=128,
    num_experts=32, num_experts_per_tok=2, moe_intermediate_size=96)  # fmt: skip
transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(sys.argv[1])
model = transformers.AutoModelForCausalLM.from_pretrained(
    sys.argv[1], dtype=torch.bfloat16, device_map="cpu",
    quantization_config=transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"))  # fmt: skip
elements = {"4 bits": 0, "bf16": 0}
for parameter in model.parameters():
    if isinstance(parameter, bitsandbytes.nn.Params4bit):
        elements["4 bits"] += 2 * parameter.numel()
    else:
        elements["bf16"] += parameter.numel()
experts = [parameter for name, parameter in model.named_parameters() if ".experts." in name]
share = sum(parameter.numel() for parameter in experts) / sum(elements.values())
print("bitsandbytes", bitsandbytes.__version__, "transformers", transformers.__version__, "torch", torch.__version__)
print("parameters:", elements, "experts:", f"{share:.3f} of them, in", {str(parameter.dtype) for parameter in experts})
as_described = {parameter.dtype for parameter in experts} == {torch.bfloat16} and share > 0.8 and elements["4 bits"] > 0
sys.exit("it changed" if not as_described else 0)
PYTHON
