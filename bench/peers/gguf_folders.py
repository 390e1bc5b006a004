#!/usr/bin/env python3
"""Writes random Hugging Face folders of the cases of tests/oracle/make_folders.py, with a vocabulary of 320 tokens and
without what llama.cpp cannot compute, for the claims about GGUF files.

    gguf_folders.py OUT_DIR

Prints one line of JSON: {case: null, or what `strata export --format gguf` must say when it refuses the case}. Exit code
77 without torch."""
import dataclasses
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "oracle"))
import make_folders

VOCAB = 320
# llama.cpp's context of these ends with the window, and must have room for some tokens.
WINDOWS = {"mistral": 31, "phi3-partial": 31, "mixtral-sliding": 31}
# As they are: what llama.cpp has no place for. The message names it.
REFUSED = {
    "opt": "no architecture for the family opt",
    "qwen3-biased": "attention_bias",
    "glm": "4 heads of 24 are not the hidden size, 64",
    "mistral-yarn": "beta_fast 4",
    "olmo2-biased": "attention_bias",
    "smollm3-sliding": "layer 0 has no RoPE",
    "gemma2": "square root of 20, there by that of 24",
    "gemma2-full": "softcap of 0",
    "granite-scaled": "beta_fast 4",
    "qwen2_moe": "the MLP of layer 1 is no mixture of experts",
    "qwen2_moe-all": "norm_topk_prob is true",
    "qwen3_moe-balanced": "the MLP of layer 1 is no mixture of experts",
    "qwen3_moe-one": "attention_bias",
    "qwen3_moe-tied": "norm_topk_prob is false",
    "olmoe-grouped": "2 heads of keys and values for 4 of queries",
    "gpt_oss": "beta_fast 4",
    "gpt_oss-limited": "swiglu_limit 2.5",
}
# Families that llama.cpp has under names that are not written, or has not.
REFUSED |= {case.name: f"no architecture for the family {case.config['model_type']}" for case in make_folders.CASES
            if case.config["model_type"] in ("olmo3", "ministral3", "seed_oss", "exaone4", "hunyuan_v1_dense")}  # fmt: skip
# Changed so that llama.cpp computes them, under another name if they are refused as they are.
YARN = dict(make_folders.YARN, beta_fast=32.0)
CHANGED = {
    "qwen3-biased": {"attention_bias": False, "rope_scaling": YARN},
    "glm": {"head_dim": 16},
    "mistral-yarn": {"rope_scaling": dict(YARN, attention_factor=1.3)},
    "gemma2": {"query_pre_attn_scalar": 24},
    "gemma2-full": {"query_pre_attn_scalar": 24, "attn_logit_softcapping": 4.0},
    "gemma3": {"query_pre_attn_scalar": 24},
    "gemma3-scaled": {"query_pre_attn_scalar": 24, "attention_bias": False},
    "granite-scaled": {"rope_scaling": YARN},
    "qwen2_moe": {"mlp_only_layers": []},
    "qwen2_moe-all": {"norm_topk_prob": False},
    "qwen3_moe-balanced": {"mlp_only_layers": [], "norm_topk_prob": True},
    "qwen3_moe-one": {"decoder_sparse_step": 1, "attention_bias": False, "norm_topk_prob": True},
    "olmoe-grouped": {"num_key_value_heads": 4, "norm_topk_prob": False, "attention_bias": False},
    # YaRN blends up to element 1.9999 with this base, which llama.cpp rounds to 2.
    "gpt_oss": {"rope_scaling": YARN | {"truncate": False}, "rope_theta": 17460.0},
    "gpt_oss-limited": {"swiglu_limit": 7.0, "swiglu_alpha": 1.702, "attention_bias": True,
                        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
}
LEFT_OUT = {"opt-shards", "gpt2-bare", "bloom-bare", "qwen3_moe-stacked", "mixtral-stacked"}  # the same models in other files
LEFT_OUT |= {name for name in ("gemma3", "gemma3-scaled")}  # as they are: refused like gemma2


def main():
    out, said = pathlib.Path(sys.argv[1]), {}
    for case in make_folders.CASES:
        for name, change in ((case.name, {}), (case.name + "-changed", CHANGED.get(case.name))):
            if change is None or name in LEFT_OUT:
                continue
            config = case.config | {"vocab_size": VOCAB} | change
            config |= {"sliding_window": WINDOWS[case.name]} if case.name in WINDOWS else {}
            variant = dataclasses.replace(case, name=name, config=config, saved=False, stacked=False, shards=1, dtype="F32", bare=False, old_buffers=False, tied_head_too=False)
            try:
                make_folders.make_case(variant, out / name, seed=1, own=True)
            except ImportError as error:
                print(f"gguf_folders: {error}", file=sys.stderr)
                sys.exit(77)
            said[name] = REFUSED.get(name)
    print(json.dumps(said))


main()
