#!/usr/bin/env bash
# Mamba-2 layers in transformers: a prompt at once, and the same tokens one by one with a cache.
# The good guess: both give the same logits, up to rounding. Seen with transformers 5.24.0 and torch 2.15.0: the steps are limited by
# time_step_min (Nemotron-H) or time_step_limit (Granite 4, Falcon-H1) only where several tokens are computed, and not where one
# token continues a cache. Nemotron-H has such a limit, 0.001, by default: where heads learned smaller steps, generation is another
# model than the one that was trained. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.15.0 transformers==5.24.0
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch
import transformers

transformers.utils.logging.set_verbosity_error()
SIZES = dict(vocab_size=96, hidden_size=32, num_attention_heads=4, num_key_value_heads=2)
KINDS = ["linear_attention", "full_attention"]


def nemotron(**more):
    return transformers.AutoConfig.for_model("nemotron_h", **SIZES, layers_block_type=KINDS, head_dim=8, ssm_state_size=8, mamba_num_heads=4,
                                             mamba_head_dim=8, n_groups=2, **more)  # fmt: skip


def granite(**more):
    return transformers.AutoConfig.for_model("granitemoehybrid", **SIZES, layer_types=KINDS, num_hidden_layers=2, shared_intermediate_size=40,
                                             num_local_experts=0, mamba_n_heads=8, mamba_d_state=8, **more)  # fmt: skip


def falcon(**more):
    return transformers.AutoConfig.for_model("falcon_h1", **SIZES, intermediate_size=24, num_hidden_layers=2, mamba_d_ssm=48, mamba_n_heads=6,
                                             mamba_d_state=8, **more)  # fmt: skip


@torch.no_grad()
def difference(config, bias):
    """Of the logits of 24 tokens at once and 12 tokens that continue 12."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            parameter.normal_(0, 0.3)
        if name.endswith("dt_bias"):
            parameter.fill_(bias)
    tokens = torch.randint(3, 90, (1, 24))
    whole, out, found = model(tokens).logits[:, 12:], model(tokens[:, :12], use_cache=True), []
    for t in range(12, 24):
        out = model(tokens[:, t : t + 1], use_cache=True, cache=out.cache)
        found.append(out.logits[:, -1])
    return ((torch.stack(found, 1) - whole).norm() / whole.norm()).item()


print("transformers", transformers.__version__, "torch", torch.__version__)
figures = {
    "nemotron_h, defaults, steps of 0.018": difference(nemotron(), -4.0),
    "nemotron_h, defaults, steps of 0.0003": difference(nemotron(), -8.0),
    "granitemoehybrid, defaults": difference(granite(), -4.0),
    "granitemoehybrid, steps of 0.1 to 0.5": difference(granite(time_step_limit=(0.1, 0.5)), -4.0),
    "falcon_h1, defaults": difference(falcon(), -4.0),
    "falcon_h1, steps of 0.1 to 0.5": difference(falcon(time_step_limit=(0.1, 0.5)), -4.0),
}
for name, figure in figures.items():
    print(f"{figure:9.1e}  {name}")
plain, small, *others = figures.values()
as_described = small > 5e-4 and others[0] < 1e-5 and others[1] > 1e-2 and others[2] < 1e-5 and others[3] > 1e-2
sys.exit("it changed" if not as_described else 0)
PYTHON
