#!/usr/bin/env python3
"""Writes tiny random Hugging Face folders of every family, and batches for them.

    make_folders.py OUT_DIR [--seed N] [--case NAME ...] [--own]

Weights depend only on the seed and the case. None of them is trivial (biases are random, norm weights vary
around 1), so that an error in any part of a model shows. `saved` cases are written by transformers'
save_pretrained if that is installed (--own: never), the others here, in the style of files on the Hub."""
import argparse
import dataclasses
import pathlib
import tempfile
import zlib

import numpy as np

import tensors
from decoders.mixer_cases import mixer_cases

VOCAB = 97
MICRO_BATCHES, BATCH, SEQ = 10, 2, 32  # few epochs in 50 steps: memorized batches amplify rounding errors


@dataclasses.dataclass
class Case:
    name: str
    config: dict
    saved: bool = False  # written by save_pretrained if that is installed
    bare: bool = False  # names without the family's prefix
    shards: int = 1
    dtype: str = "F32"
    old_buffers: bool = False  # the file has the mask buffers of old GPT-2 files
    stacked: bool = False  # transformers writes the matrices of all experts in one tensor
    tied_head_too: bool = False  # the file contains the head although it is tied
    routers: str = ""  # "tied": each expert has the scores of another; "one": all tokens are for one expert


def gpt2(**more):
    return dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=VOCAB, n_positions=40, n_embd=48, n_layer=3,
                n_head=4, layer_norm_epsilon=1e-3, activation_function="gelu_new", bos_token_id=0, eos_token_id=0, **more)  # fmt: skip


def opt(**more):
    return dict(model_type="opt", architectures=["OPTForCausalLM"], vocab_size=VOCAB, hidden_size=48, num_hidden_layers=3,
                num_attention_heads=4, ffn_dim=112, max_position_embeddings=40, activation_function="relu",
                word_embed_proj_dim=48, do_layer_norm_before=True, bos_token_id=2, eos_token_id=2, pad_token_id=1, **more)  # fmt: skip


def bloom(**more):
    return dict(model_type="bloom", architectures=["BloomForCausalLM"], vocab_size=VOCAB, layer_norm_epsilon=1e-3,
                bos_token_id=0, eos_token_id=2, **more)  # fmt: skip


def llama_like(model_type, name, **more):
    base = dict(model_type=model_type, architectures=[name + "ForCausalLM"], vocab_size=VOCAB, hidden_size=64,
                intermediate_size=88, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, hidden_act="silu",
                max_position_embeddings=128, rms_norm_eps=1e-3, rope_theta=5000.0, bos_token_id=0, eos_token_id=2,
                pad_token_id=None, tie_word_embeddings=False)  # fmt: skip
    return base | more


# Number of keys that a query of a sliding layer sees, in rows of 32.
WINDOW = 7


def gemma(model_type, name, **more):
    base = llama_like(model_type, name, head_dim=24, query_pre_attn_scalar=20, hidden_activation="gelu_pytorch_tanh",
                      tie_word_embeddings=True, sliding_window=WINDOW)  # fmt: skip
    del base["hidden_act"]
    return base | more


def gemma4(**more):
    base = gemma("gemma4_text", "Gemma4", head_dim=16, global_head_dim=32, hidden_size_per_layer_input=0, num_hidden_layers=4,
                 layer_types=["sliding_attention", "full_attention"] * 2)  # fmt: skip
    for key in ("rope_theta", "query_pre_attn_scalar"):
        del base[key]
    return base | more


def experts(model_type, name, **more):
    return llama_like(model_type, name, num_experts_per_tok=2, output_router_logits=False) | more


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=4.0, beta_slow=1.0)
# 8 wavelengths, with 32 original positions: one below 32 / 4 stays, those above 32 are scaled, one between is
# blended.
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)

# YaRN in the layers that see all keys, and the plain base in the others.
BY_LAYER = {"full_attention": YARN | {"rope_theta": 900.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}
# Three of sixteen pairs of Gemma 4's heads turn, more slowly.
PROPORTIONAL = {"full_attention": {"rope_type": "proportional", "rope_theta": 900.0, "partial_rotary_factor": 0.2, "factor": 2.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}
# Queries grow from position 128 on, which no row of a case has.
GROWING = YARN | dict(rope_theta=5000.0, original_max_position_embeddings=128, max_position_embeddings=512, mscale=1.0,
                      mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
NO_DROPOUT = dict(attention_dropout=0.0, residual_dropout=0.0)

CASES = [
    Case("gpt2", gpt2(), saved=True),
    Case("gpt2-untied", gpt2(tie_word_embeddings=False), saved=True),
    Case("gpt2-bare", gpt2(n_inner=80), bare=True, old_buffers=True),
    Case("opt", opt(), saved=True),
    Case("opt-shards", opt(), shards=2, dtype="F16"),
    Case("bloom", bloom(hidden_size=48, n_layer=3, n_head=6), saved=True),
    Case("bloom-bare", bloom(n_embed=64, n_layer=2, num_attention_heads=8), bare=True),
    Case("llama", llama_like("llama", "Llama", rope_scaling=LLAMA3), saved=True),
    Case("llama-biased", llama_like("llama", "Llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                    num_key_value_heads=4, rope_scaling={"type": "linear", "factor": 2.5}), tied_head_too=True),
    Case("llama-scaled", llama_like("llama", "Llama", num_key_value_heads=1, head_dim=24, rope_scaling=LLAMA3),
         shards=3, dtype="BF16"),
    Case("qwen2", llama_like("qwen2", "Qwen2", tie_word_embeddings=True, use_sliding_window=False), saved=True),
    Case("qwen2-untied", llama_like("qwen2", "Qwen2", num_attention_heads=6, hidden_size=48, use_sliding_window=False,
                                    sliding_window=16, max_window_layers=3)),
    Case("qwen3", llama_like("qwen3", "Qwen3", head_dim=24, tie_word_embeddings=True), saved=True),
    Case("qwen3-biased", llama_like("qwen3", "Qwen3", head_dim=12, attention_bias=True)),
    Case("glm", llama_like("glm", "Glm", head_dim=24, attention_bias=True, partial_rotary_factor=0.5), saved=True),
    Case("glm-biasless", llama_like("glm", "Glm", head_dim=16, attention_bias=False, num_key_value_heads=1)),
    Case("glm4", llama_like("glm4", "Glm4", head_dim=24, attention_bias=False, partial_rotary_factor=0.5), saved=True),
    Case("glm4-biased", llama_like("glm4", "Glm4", head_dim=16, attention_bias=True, partial_rotary_factor=0.5)),
    Case("mistral", llama_like("mistral", "Mistral", sliding_window=WINDOW), saved=True),
    Case("mistral-full", llama_like("mistral", "Mistral", head_dim=24, sliding_window=None, num_key_value_heads=1)),
    Case("mistral-yarn", llama_like("mistral", "Mistral", sliding_window=31, rope_scaling=YARN), shards=2, dtype="BF16"),
    Case("olmo2", llama_like("olmo2", "Olmo2"), saved=True),
    Case("olmo2-biased", llama_like("olmo2", "Olmo2", attention_bias=True, num_key_value_heads=4, tie_word_embeddings=True)),
    Case("phi3", llama_like("phi3", "Phi3"), saved=True),
    Case("phi3-partial", llama_like("phi3", "Phi3", partial_rotary_factor=0.75, sliding_window=WINDOW, tie_word_embeddings=True)),
    Case("smollm3", llama_like("smollm3", "SmolLM3", num_hidden_layers=5, no_rope_layer_interval=4), saved=True),
    Case("smollm3-sliding", llama_like("smollm3", "SmolLM3", use_sliding_window=True, sliding_window=WINDOW, attention_bias=True,
                                       mlp_bias=True, no_rope_layers=[0, 1, 0], tie_word_embeddings=True, rope_scaling=YARN)),
    Case("gemma2", gemma("gemma2", "Gemma2", attn_logit_softcapping=2.0, final_logit_softcapping=3.0), saved=True),
    Case("gemma2-full", gemma("gemma2", "Gemma2", attn_logit_softcapping=None, num_key_value_heads=1,
                              layer_types=["full_attention", "sliding_attention", "full_attention"]), dtype="BF16"),
    Case("gemma3", gemma("gemma3_text", "Gemma3", num_hidden_layers=4, sliding_window_pattern=2, rope_local_base_freq=700.0),
         saved=True),
    Case("gemma3-scaled", gemma("gemma3_text", "Gemma3", rope_scaling={"rope_type": "linear", "factor": 8.0}, attention_bias=True,
                                layer_types=["sliding_attention", "sliding_attention", "full_attention"], final_logit_softcapping=5.0),
         shards=2),
    Case("gemma4", gemma4(attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=3.0), saved=True),
    Case("gemma4-values", gemma4(attention_bias=True, num_hidden_layers=3, head_dim=12, global_head_dim=24, tie_word_embeddings=False,
                                 layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters=PROPORTIONAL),
         dtype="BF16", shards=2),
    Case("gemma4-experts", gemma4(attention_k_eq_v=True, num_global_key_value_heads=2, enable_moe_block=True, num_experts=6, top_k_experts=2,
                                  moe_intermediate_size=24, final_logit_softcapping=5.0), saved=True),
    Case("gemma4-all", gemma4(attention_k_eq_v=True, num_global_key_value_heads=4, num_hidden_layers=2, layer_types=None, enable_moe_block=True,
                              num_experts=3, top_k_experts=3, moe_intermediate_size=40, rope_parameters=PROPORTIONAL), shards=2),
    Case("granite", llama_like("granite", "Granite", tie_word_embeddings=True, embedding_multiplier=3.0, residual_multiplier=0.7,
                               attention_multiplier=0.2, logits_scaling=2.0), saved=True),
    Case("granite-scaled", llama_like("granite", "Granite", attention_bias=True, mlp_bias=True, head_dim=24, rope_scaling=YARN,
                                      embedding_multiplier=12.0, attention_multiplier=0.35, logits_scaling=0.8), dtype="BF16"),
    Case("olmo3", llama_like("olmo3", "Olmo3", num_hidden_layers=4, sliding_window=WINDOW, layer_types=["sliding_attention"] * 3 + ["full_attention"],
                             rope_parameters=BY_LAYER), saved=True),
    Case("olmo3-biased", llama_like("olmo3", "Olmo3", num_hidden_layers=4, sliding_window=WINDOW, attention_bias=True, tie_word_embeddings=True,
                                    num_key_value_heads=4, rope_theta=500000.0), shards=2),
    Case("ministral3", llama_like("ministral3", "Ministral3", head_dim=24, sliding_window=None, rope_parameters=GROWING), saved=True),
    Case("ministral3-sliding", llama_like("ministral3", "Ministral3", sliding_window=WINDOW, head_dim=16, tie_word_embeddings=True,
                                          rope_parameters=GROWING | {"rope_type": "default", "llama_4_scaling_beta": 0.0}), dtype="BF16"),
    Case("seed_oss", llama_like("seed_oss", "SeedOss", head_dim=24, attention_bias=True, attention_out_bias=False, **NO_DROPOUT), saved=True),
    Case("seed_oss-out", llama_like("seed_oss", "SeedOss", head_dim=16, attention_bias=False, attention_out_bias=True, mlp_bias=True,
                                    tie_word_embeddings=True, rope_scaling=LLAMA3, **NO_DROPOUT), shards=2),
    Case("exaone4", llama_like("exaone4", "Exaone4", num_hidden_layers=4, sliding_window=WINDOW, sliding_window_pattern=4,
                               rope_scaling=LLAMA3), saved=True),
    Case("exaone4-full", llama_like("exaone4", "Exaone4", sliding_window=None, layer_types=["full_attention"] * 3, head_dim=24,
                                    sliding_window_pattern=None, tie_word_embeddings=True), dtype="BF16"),
    Case("hunyuan", llama_like("hunyuan_v1_dense", "HunYuanDenseV1", head_dim=24, tie_word_embeddings=True,
                               rope_scaling={"type": "dynamic", "alpha": 50.0, "factor": 1.0}), saved=True),
    Case("hunyuan-biased", llama_like("hunyuan_v1_dense", "HunYuanDenseV1", head_dim=16, attention_bias=True, num_key_value_heads=1)),
    Case("qwen2_moe", experts("qwen2_moe", "Qwen2Moe", num_experts=6, moe_intermediate_size=40, shared_expert_intermediate_size=56,
                              mlp_only_layers=[1], use_sliding_window=False), saved=True),
    Case("qwen2_moe-all", experts("qwen2_moe", "Qwen2Moe", num_experts=5, num_experts_per_tok=5, moe_intermediate_size=24,
                                  shared_expert_intermediate_size=32, norm_topk_prob=True, use_sliding_window=False), shards=2),
    Case("qwen3_moe", experts("qwen3_moe", "Qwen3Moe", num_experts=8, moe_intermediate_size=40, norm_topk_prob=True, head_dim=24),
         saved=True),
    Case("qwen3_moe-balanced", experts("qwen3_moe", "Qwen3Moe", num_experts=6, moe_intermediate_size=24, mlp_only_layers=[1],
                                       output_router_logits=True, router_aux_loss_coef=0.5, router_z_loss_coef=0.1), saved=True),
    Case("qwen3_moe-one", experts("qwen3_moe", "Qwen3Moe", num_experts=7, num_experts_per_tok=1, moe_intermediate_size=24,
                                  decoder_sparse_step=2, attention_bias=True, tie_word_embeddings=True), dtype="BF16"),
    Case("qwen3_moe-stacked", experts("qwen3_moe", "Qwen3Moe", num_experts=4, moe_intermediate_size=40, norm_topk_prob=True),
         saved=True, stacked=True),
    Case("qwen3_moe-tied", experts("qwen3_moe", "Qwen3Moe", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24),
         routers="tied"),
    Case("olmoe", experts("olmoe", "Olmoe", num_experts=8, num_experts_per_tok=3, num_key_value_heads=4), saved=True),
    Case("olmoe-grouped", experts("olmoe", "Olmoe", num_experts=4, norm_topk_prob=True, attention_bias=True)),
    Case("mixtral", experts("mixtral", "Mixtral", num_local_experts=8, sliding_window=None), saved=True),
    Case("mixtral-balanced", experts("mixtral", "Mixtral", num_local_experts=4, sliding_window=None, output_router_logits=True,
                                     router_aux_loss_coef=0.3)),
    Case("mixtral-stacked", experts("mixtral", "Mixtral", num_local_experts=4, sliding_window=None), saved=True, stacked=True),
    Case("mixtral-sliding", experts("mixtral", "Mixtral", num_local_experts=4, sliding_window=WINDOW, head_dim=24), shards=3),
    Case("glm4_moe", experts("glm4_moe", "Glm4Moe", n_routed_experts=6, n_group=3, topk_group=2, moe_intermediate_size=40,
                             n_shared_experts=2, routed_scaling_factor=1.75, use_qk_norm=True, head_dim=24, partial_rotary_factor=0.5,
                             num_nextn_predict_layers=0), saved=True),
    Case("glm4_moe-biased", experts("glm4_moe", "Glm4Moe", n_routed_experts=8, moe_intermediate_size=24, norm_topk_prob=False,
                                    first_k_dense_replace=0, attention_bias=True, num_experts_per_tok=3, partial_rotary_factor=0.5,
                                    num_nextn_predict_layers=0, output_router_logits=True, router_aux_loss_coef=0.4), dtype="F32", shards=2),
    Case("gpt_oss", experts("gpt_oss", "GptOss", num_local_experts=6, sliding_window=WINDOW, head_dim=24, attention_bias=True,
                            rope_scaling=YARN | {"truncate": False}), saved=True),
    Case("gpt_oss-empty", experts("gpt_oss", "GptOss", num_local_experts=6, num_experts_per_tok=1, sliding_window=WINDOW,
                                  head_dim=16, attention_bias=True, rope_scaling={"rope_type": "default"}), routers="one"),
    Case("gpt_oss-limited", experts("gpt_oss", "GptOss", num_local_experts=4, num_experts_per_tok=3, sliding_window=WINDOW,
                                    layer_types=["full_attention", "sliding_attention", "sliding_attention"], attention_bias=False,
                                    head_dim=16, swiglu_limit=2.5, swiglu_alpha=1.25, rope_scaling={"rope_type": "default"}, output_router_logits=True,
                                    router_aux_loss_coef=0.4, router_z_loss_coef=0.1), shards=2),
    *mixer_cases(Case, llama_like, YARN)
]  # fmt: skip


def is_norm(name):
    """Whether a weight or bias belongs to a norm, by the last part of its module's name."""
    module = name.rsplit(".", 2)[-2]
    return "norm" in module or module.startswith("ln_")


def random_weights(shapes, case, seed):
    rng = np.random.default_rng([seed, zlib.crc32(case.name.encode())])
    weights = {}
    around_0 = case.config["model_type"].startswith(("gemma2", "gemma3", "qwen3_5", "qwen3_next"))  # they store most norm weights so
    for name, shape in shapes.items():
        noise = rng.standard_normal(shape, dtype=np.float32)
        if is_norm(name):
            offset = around_0 and ".linear_attn." not in name
            weights[name] = 0.2 * noise + (1 - offset if name.endswith(".weight") else 0)
        elif name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
            weights[name] = 1 + 0.2 * noise
        elif name.endswith(("A_log", "dt_bias")):  # a state keeps from nearly all to nearly nothing of itself
            weights[name] = noise - 1
        elif name.endswith(".bias"):
            weights[name] = 0.2 * noise
            # A ReLU unit that is rarely on has gradients that appear and vanish with rounding, and Adam makes
            # full steps of them. This bias keeps the units mostly on.
            weights[name] += 1.5 if ".fc1." in name else 0
        else:
            weights[name] = (0.3 if "embed" in name or name.split(".")[-2] in ("wte", "wpe") else 0.15) * noise
        weights[name] = weights[name].astype(np.float32)
    return weights


def change_routers(weights, kind):
    for name, array in weights.items():
        if kind == "tied" and name.endswith("mlp.gate.weight"):
            array[1::2] = array[0::2]
        if kind == "one" and name.endswith("mlp.router.bias"):
            array[3] += 20


def make_case(case, folder, seed, own, of_bf16=False):
    """Writes folder/hf, folder/whole.safetensors and folder/packed.safetensors. `of_bf16`: all weights are
    bfloat16 numbers, whatever the dtype of the file, so that models that round the weights start with the
    same values."""
    from families import family_of  # imported here, since the list of cases does not need torch

    family = family_of(case.config)
    weights = random_weights(family.all_shapes(), case, seed)
    change_routers(weights, case.routers)
    if of_bf16:
        weights = {name: tensors.as_bf16(array) for name, array in weights.items()}
    folder.mkdir(parents=True, exist_ok=True)
    if not (case.saved and not own and save_pretrained(case, family, weights, folder / "hf")):
        if case.bare:
            weights = {name.removeprefix(family.prefix): array for name, array in weights.items()}
        if case.old_buffers:
            n = case.config["n_positions"]
            for layer in range(case.config["n_layer"]):
                weights[f"h.{layer}.attn.bias"] = np.tril(np.ones((1, 1, n, n), np.float32))
                weights[f"h.{layer}.attn.masked_bias"] = np.array(-1e4, np.float32)
        if case.tied_head_too:
            weights[family.final_table] = weights[family.prefix + family.table]
        tensors.write_folder(folder / "hf", case.config, weights, case.dtype, case.shards)
    for rows in ("whole", "packed"):
        tensors.write(folder / f"{rows}.safetensors", batches(seed, rows == "packed"))


def save_pretrained(case, family, weights, folder):
    try:
        import torch
        import transformers
    except ImportError:
        return False
    transformers.utils.logging.disable_progress_bar()
    if hasattr(family, "n_experts"):  # whose weights it stacks when it loads a folder
        with tempfile.TemporaryDirectory() as plain:
            tensors.write_folder(pathlib.Path(plain), case.config, weights, "F32", 1)
            transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32).save_pretrained(
                folder, save_original_format=not case.stacked)
        return True
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**case.config))
    missing, unexpected = model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()}, strict=False)
    if unexpected or any(name != "lm_head.weight" for name in missing):
        raise RuntimeError(f"{case.name}: transformers knows other weights: missing {missing}, unexpected {unexpected}")
    model.save_pretrained(folder)
    return True


def batches(seed, packed):
    rng = np.random.default_rng([seed, packed])
    shape = (MICRO_BATCHES, BATCH, SEQ)
    # All tokens but 1: in transformers' OPT that row of the embedding is padding and is never trained.
    tokens = rng.choice(np.delete(np.arange(VOCAB), 1), shape)
    targets = np.roll(tokens, -1, axis=-1)
    targets[..., -1] = -1
    targets[rng.random(shape) < 0.1] = -1
    if not packed:
        return {"tokens": tokens.astype(np.int32), "targets": targets.astype(np.int32)}
    begins = rng.random(shape) < 0.12
    begins[0, 0, :] = False  # one row is a single document
    begins[0, 1, 5:7] = True  # and one has a document of one token
    begins[..., 0] = True
    doc_start = np.maximum.accumulate(np.where(begins, np.arange(SEQ), 0), axis=-1)
    targets[..., :-1][begins[..., 1:]] = -1  # the last token of a document has no target
    return {name: array.astype(np.int32) for name, array in dict(tokens=tokens, targets=targets, doc_start=doc_start).items()}


def choose(names):
    """The cases with these names or families; all if none are given."""
    known = {case.name for case in CASES} | {case.config["model_type"] for case in CASES}
    for name in names or ():
        if name not in known:
            raise SystemExit(f"there is no case or family {name}; available: {', '.join(sorted(known))}")
    return [case for case in CASES if not names or {case.name, case.config["model_type"]} & set(names)]


def one_of_each():
    """The last case of each family."""
    from families import FAMILIES

    cases = {case.config["model_type"]: case for case in CASES}
    if lacking := FAMILIES.keys() - cases.keys():
        raise SystemExit(f"make_folders.py has no case of {', '.join(sorted(lacking))}")
    return list(cases.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", nargs="+", metavar="NAME", help="cases, or families whose cases are written (default: all)")
    parser.add_argument("--own", action="store_true", help="write all folders without transformers")
    args = parser.parse_args()
    for case in choose(args.case):
        make_case(case, args.out / case.name, args.seed, args.own)
        print(args.out / case.name)


if __name__ == "__main__":
    main()
