#!/usr/bin/env bash
# A PEFT adapter of a mixture of experts with a rank_pattern of its own, saved and loaded again.
# The good guess: it loads, as every folder that PEFT has written. Seen with PEFT 0.21.2, transformers 5.24.0 and torch 2.15.0:
# where PEFT translates gate_proj and up_proj to one parameter of all experts, it adds a pattern of twice the rank behind the
# given ones, of which the first that matches counts; the file has the patterns sorted, so that the added one comes first, and
# loading ends with a size mismatch. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0 peft==0.21.2
"$folder/venv/bin/python" - "$folder/adapter" <<'PYTHON'
import json
import pathlib
import sys

import peft
import torch
import transformers

sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2)
config = transformers.Qwen3MoeConfig(**sizes, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)
base = transformers.AutoModelForCausalLM.from_config(config)
settings = peft.LoraConfig(r=4, target_modules=["gate_proj", "up_proj", "down_proj"], rank_pattern={".*experts.*": 2}, task_type="CAUSAL_LM")
model = peft.get_peft_model(base, settings)
in_memory = list(model.peft_config["default"].rank_pattern)
model.save_pretrained(sys.argv[1])
in_file = list(json.loads((pathlib.Path(sys.argv[1]) / "adapter_config.json").read_text())["rank_pattern"])
try:
    peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_config(config), sys.argv[1])
    outcome = "loads"
except RuntimeError as error:
    outcome = "size mismatch" if "size mismatch" in str(error) else str(error)
print("peft", peft.__version__, "transformers", transformers.__version__, "torch", torch.__version__)
print("patterns in memory:", in_memory, "in the file:", in_file, "loading:", outcome)
as_described = in_memory == [".*experts.*", r".*\.gate_up_proj"] and in_file == in_memory[::-1] and outcome == "size mismatch"
sys.exit("it changed" if not as_described else 0)
PYTHON
