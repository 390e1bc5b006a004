#!/usr/bin/env bash
# A folder of Kimi K2.5's kind, saved by transformers.
# The good guess: tensors have the names of the published folders (language_model.model.layers.N...), which other programs read. Seen
# with transformers 5.24.0: the rule that turns the vision tower's names back also takes the language model's, so that its layers are
# saved as language_model.model.blocks.N, and a norm of the projector under the name of the module. transformers reads both forms,
# so that nothing is said. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import re
import sys

import safetensors.torch
import transformers

transformers.utils.logging.set_verbosity_error()
text = dict(model_type="deepseek_v3", vocab_size=96, hidden_size=32, intermediate_size=24, moe_intermediate_size=16, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
            first_k_dense_replace=1, q_lora_rank=8, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8)  # fmt: skip
vision = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
config = transformers.AutoConfig.for_model("kimi_k25", text_config=text, vision_config=vision)
saved, published = sys.argv[1] + "/saved", sys.argv[1] + "/published"
transformers.AutoModelForImageTextToText.from_config(config).save_pretrained(saved)
tensors = safetensors.torch.load_file(saved + "/model.safetensors")
renamed = {name.replace("language_model.model.blocks.", "language_model.model.layers."): of for name, of in tensors.items()}
config.save_pretrained(published)
safetensors.torch.save_file(renamed, published + "/model.safetensors")
names = sorted({re.sub(r"\d+\..*", "N", name) for name in tensors if name.startswith("language_model.model.")})
print("transformers", transformers.__version__, "saves", names)
missing = {}
for folder in (saved, published):
    _, info = transformers.AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    missing[folder.rpartition("/")[2]] = len(info["missing_keys"]) + len(info["unexpected_keys"])
print("missing or unexpected tensors where it reads:", missing)
as_described = "language_model.model.blocks.N" in names and "language_model.model.layers.N" not in names and not any(missing.values())
sys.exit("it changed" if not as_described else 0)
PYTHON
