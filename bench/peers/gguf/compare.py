#!/usr/bin/env python3
"""Compares GGUF files with Hugging Face folders of the same models, by llama.cpp's own package `gguf`: its reader, its
names of tensors and keys, its quantizer.

    compare.py        reads lines of JSON: {"name", "gguf", "f32": folder, "same": folder of the file's dtype, "dtype"}

Prints one line of JSON for each: the differing bytes, the worst error of a quantized value over half a step, and problems.
Exit code 77 without the package."""
import json
import math
import pathlib
import sys

import numpy as np

try:
    import gguf
except ImportError:
    sys.exit(77)
from folder_tensors import wanted_tensors

ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "glm": "chatglm", "gemma3_text": "gemma3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
                 "glm4_moe": "glm4moe", "gpt_oss": "gpt-oss"}  # fmt: skip
FILE_TYPES = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
              "mxfp4_moe": gguf.LlamaFileType.MOSTLY_MXFP4_MOE}  # fmt: skip
TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "mxfp4_moe": "Q8_0"}
BLOCKS, BLOCK = ("Q8_0", "MXFP4"), 32


def is_vector(name, array):
    """Whether it is f32 in every file."""
    return array.ndim < 2 or name == "position_embd.weight" or not name.endswith(".weight") or name.endswith("ffn_gate_inp.weight")


def compare_tensor(tensor, full, same, dtype, row):
    """Adds to `row` what differs in one tensor. `full` and `same`: as the folder in f32 and that in the file's dtype have it."""
    wanted = "MXFP4" if dtype == "mxfp4_moe" and full.ndim == 3 else TYPES[dtype]
    falls_back = wanted in BLOCKS and full.shape[-1] % BLOCK != 0
    kind = "F32" if is_vector(tensor.name, full) else "F16" if falls_back else wanted
    if tensor.tensor_type.name != kind:
        row["problems"].append(f"{tensor.name} is {tensor.tensor_type.name}, not {kind}")
        return
    if tuple(reversed(tensor.shape.tolist())) != full.shape:
        row["problems"].append(f"{tensor.name} is {tensor.shape.tolist()}, not {full.shape} reversed")
        return
    if kind in BLOCKS:
        want = gguf.quantize(np.ascontiguousarray(full), gguf.GGMLQuantizationType[kind])
        row["differing_bytes"] += int((np.asarray(tensor.data).reshape(-1) != want.reshape(-1)).sum())
    if kind == "MXFP4":
        return
    if kind == "Q8_0":
        blocks = full.reshape(-1, BLOCK).astype(np.float64)
        steps = np.abs(blocks).max(axis=1, keepdims=True) / 127
        scales = steps.astype(np.float16).astype(np.float64)
        allowed = steps / 2 + 127 * np.abs(steps - scales) + 1e-30  # the scale is rounded, too
        errors = np.abs(gguf.dequantize(tensor.data, tensor.tensor_type).reshape(-1, BLOCK) - blocks)
        row["worst_over_half_step"] = max(row["worst_over_half_step"], float((errors / allowed).max()))
        return
    got = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    want = (full.astype(np.float16) if kind == "F16" and falls_back else full if kind == "F32" else same).astype(np.float32)
    row["differing_bytes"] += int((np.ascontiguousarray(got).view(np.uint8) != np.ascontiguousarray(want).view(np.uint8)).sum())


def wanted_experts(config):
    """The keys of mixtures of experts."""
    k, family = gguf.Keys.LLM, config["model_type"]
    n = next((config[name] for name in ("num_experts", "num_local_experts", "n_routed_experts") if name in config), None)
    if n is None:
        return {}
    want = {k.EXPERT_COUNT: n, k.EXPERT_USED_COUNT: config["num_experts_per_tok"]}
    if family in ("qwen2_moe", "qwen3_moe", "glm4_moe", "gpt_oss"):
        want[k.EXPERT_FEED_FORWARD_LENGTH] = config.get("moe_intermediate_size", config["intermediate_size"])
    if family == "qwen2_moe":
        want[k.EXPERT_SHARED_FEED_FORWARD_LENGTH] = config["shared_expert_intermediate_size"]
    if family != "glm4_moe":
        return want
    return want | {k.EXPERT_SHARED_COUNT: config["n_shared_experts"], k.LEADING_DENSE_BLOCK_COUNT: config["first_k_dense_replace"],
                   k.EXPERT_GATING_FUNC: int(gguf.ExpertGatingFuncType.SIGMOID), k.EXPERT_WEIGHTS_NORM: config["norm_topk_prob"],
                   k.EXPERT_WEIGHTS_SCALE: float(config["routed_scaling_factor"]), k.EXPERT_GROUP_COUNT: config["n_group"],
                   k.EXPERT_GROUP_USED_COUNT: config["topk_group"]}  # fmt: skip


def wanted_metadata(folder, config, architecture, dtype):
    """{key: value} of the keys that llama.cpp needs."""
    k, of = gguf.Keys, lambda key: key.format(arch=architecture)
    get = lambda *names: next((config[name] for name in names if config.get(name) is not None), None)
    hidden, heads = get("hidden_size", "n_embd"), get("num_attention_heads", "n_head")
    positions, window = get("max_position_embeddings", "n_positions"), config.get("sliding_window")
    slides = architecture in ("gemma2", "gemma3", "gpt-oss")
    head_dim = config.get("head_dim") or hidden // heads
    want = {k.General.ARCHITECTURE: architecture, k.General.FILE_TYPE: int(FILE_TYPES[dtype]), k.General.QUANTIZATION_VERSION: gguf.GGML_QUANT_VERSION,
            of(k.LLM.EMBEDDING_LENGTH): hidden, of(k.LLM.BLOCK_COUNT): get("num_hidden_layers", "n_layer"),
            of(k.LLM.FEED_FORWARD_LENGTH): get("intermediate_size", "n_inner") or 4 * hidden, of(k.LLM.VOCAB_SIZE): config["vocab_size"],
            of(k.Attention.HEAD_COUNT): heads, of(k.Attention.HEAD_COUNT_KV): config.get("num_key_value_heads") or heads,
            of(k.Attention.KEY_LENGTH): head_dim, of(k.Attention.VALUE_LENGTH): head_dim}  # fmt: skip
    if positions:
        want[of(k.LLM.CONTEXT_LENGTH)] = min(positions, window) if window and not slides and config.get("use_sliding_window", True) else positions
    rms = config.get("rms_norm_eps")
    want[of(k.Attention.LAYERNORM_RMS_EPS if rms else k.Attention.LAYERNORM_EPS)] = rms or config["layer_norm_epsilon"]
    if architecture == "gpt-oss":
        want[of(k.Attention.SLIDING_WINDOW)] = window
    elif slides:
        want |= {of(k.Attention.SLIDING_WINDOW): window, of(k.Attention.SLIDING_WINDOW_PATTERN): [kind == "sliding_attention" for kind in config["layer_types"]],
                 of(k.LLM.FINAL_LOGIT_SOFTCAPPING): config.get("final_logit_softcapping") or 0}  # fmt: skip
    want |= {of(key): value for key, value in wanted_experts(config).items()}
    if config.get("attn_logit_softcapping"):
        want[of(k.LLM.ATTN_LOGIT_SOFTCAPPING)] = config["attn_logit_softcapping"]
    if "rope_theta" in config:
        want |= {of(k.Rope.FREQ_BASE): config["rope_theta"], of(k.Rope.DIMENSION_COUNT): int(head_dim * config.get("partial_rotary_factor", 1))}
    if "rope_local_base_freq" in config:
        want[f"{architecture}.rope.freq_base_swa"] = config["rope_local_base_freq"]
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") in ("linear", "yarn"):
        want |= {of(k.Rope.SCALING_TYPE): scaling["rope_type"], of(k.Rope.SCALING_FACTOR): scaling["factor"]}
    if scaling.get("rope_type") == "yarn":
        grown = 0.1 * math.log(scaling["factor"]) + 1
        want |= {of(k.Rope.SCALING_ORIG_CTX_LEN): scaling["original_max_position_embeddings"],
                 of(k.Rope.SCALING_ATTN_FACTOR): scaling.get("attention_factor", grown) / grown}  # fmt: skip
    tokenizer = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
    tokens = {id: text for text, id in tokenizer["model"]["vocab"].items()} | {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    special = {token["id"] for token in tokenizer["added_tokens"] if token["special"]}
    n = config["vocab_size"]
    types = [gguf.TokenType.UNUSED if id not in tokens else gguf.TokenType.CONTROL if id in special else gguf.TokenType.NORMAL for id in range(n)]
    want |= {k.Tokenizer.MODEL: "gpt2", k.Tokenizer.PRE: "gpt-2", k.Tokenizer.LIST: [tokens.get(id, f"[PAD{id}]") for id in range(n)],
             k.Tokenizer.TOKEN_TYPE: [int(kind) for kind in types], k.Tokenizer.MERGES: tokenizer["model"]["merges"], k.Tokenizer.ADD_BOS: False}  # fmt: skip
    generation = json.loads((pathlib.Path(folder) / "generation_config.json").read_text())
    return want | {k.Tokenizer.BOS_ID: generation["bos_token_id"], k.Tokenizer.EOS_ID: generation["eos_token_id"]}


def same_value(got, want):
    if isinstance(want, float):
        return isinstance(got, float) and math.isclose(got, want, rel_tol=1e-6)
    return got == want


def compare(export):
    row = {"name": export["name"], "dtype": export["dtype"], "differing_bytes": 0, "worst_over_half_step": 0.0, "problems": []}
    reader, config = gguf.GGUFReader(export["gguf"]), json.loads((pathlib.Path(export["f32"]) / "config.json").read_text())
    architecture = ARCHITECTURES.get(config["model_type"], config["model_type"])
    full, same = (wanted_tensors(export[which], config, architecture) for which in ("f32", "same"))
    found = {tensor.name: tensor for tensor in reader.tensors}
    if set(found) != set(full):
        row["problems"].append(f"tensors missing: {sorted(set(full) - set(found))}, unexpected: {sorted(set(found) - set(full))}")
    for name in sorted(set(found) & set(full)):
        compare_tensor(found[name], full[name], same[name], export["dtype"], row)
    for key, want in wanted_metadata(export["f32"], config, architecture, export["dtype"]).items():
        field = reader.get_field(key)
        if field is None or not same_value(field.contents(), want):
            row["problems"].append(f"{key} is {str(field and field.contents())[:80]}, not {str(want)[:80]}")
    return row | {"tensors": len(found), "values": int(sum(array.size for array in full.values()))}


for line in sys.stdin:
    print(json.dumps(compare(json.loads(line))), flush=True)
