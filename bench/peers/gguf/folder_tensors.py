"""The tensors of a Hugging Face folder as llama.cpp's converter writes them: its names, and what it does with a family's
tensors (transposes, order of rows, Gemma's 1), which is written here a second time. Needs the package gguf."""
import math
import pathlib
import sys

import gguf
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests" / "oracle"))
import tensors as safetensors


def folder_tensors(folder):
    return {name: array for file in sorted(pathlib.Path(folder).glob("*.safetensors")) for name, array in safetensors.read(file).items()}


def in_pairs(rows, heads):
    """Of each head, the first elements of all pairs and then the second ones become pair after pair."""
    size = rows.shape[0] // heads
    order = [head * size + half * (size // 2) + i for head in range(heads) for i in range(size // 2) for half in (0, 1)]
    return rows[order]


def converted(name, array, config):
    """The tensor as llama.cpp has it."""
    family, heads = config["model_type"], config.get("num_attention_heads", config.get("n_head"))
    if family == "gpt2" and array.ndim == 2 and any(part in name for part in ("c_attn", "c_proj", "c_fc")):
        return array.T
    if family == "bloom" and "query_key_value" in name:
        parts = array.reshape(heads, 3, array.shape[0] // heads // 3, *array.shape[1:])
        return np.concatenate([parts[:, part].reshape(-1, *array.shape[1:]) for part in range(3)])
    if family in ("llama", "mistral", "mixtral", "smollm3", "granite"):
        if "q_proj" in name:
            return in_pairs(array, heads)
        if "k_proj" in name:
            return in_pairs(array, config.get("num_key_value_heads", heads))
    if family.startswith("gemma") and name.endswith("norm.weight"):
        return array + np.float32(1)
    return array


def with_experts_together(tensors, config):
    """The matrices of all experts of a layer as one tensor, as the converter stacks them, under names that the package knows."""
    out, experts = {}, {}
    for name, array in tensors.items():
        parts = name.split(".")
        if "experts" in parts and parts[parts.index("experts") + 1].isdigit():
            at = parts.index("experts") + 1
            experts.setdefault(".".join(parts[:at] + parts[at + 1 :]), {})[int(parts[at])] = array
        elif config["model_type"] == "gpt_oss" and ".experts." in name:  # [experts, in, out], gates and ups in turn
            kind = "bias" if name.endswith("_bias") else "weight"
            rows = array if kind == "bias" else array.transpose(0, 2, 1)
            base = name.removesuffix("_bias")
            if base.endswith("gate_up_proj"):
                for half, part in enumerate(("gate_proj", "up_proj")):
                    out[f"{base.replace('gate_up_proj', part)}.{kind}"] = np.ascontiguousarray(rows[:, half::2])
            else:
                out[f"{base}.{kind}"] = np.ascontiguousarray(rows)
        elif name.endswith("sinks"):
            out[name + ".weight"] = array
        elif name.endswith("shared_expert_gate.weight"):
            out[name] = array[0]
        else:
            out[name.replace("e_score_correction_bias", "e_score_correction.bias")] = array
    return out | {name: np.stack([of[i] for i in range(len(of))]) for name, of in experts.items()}


def llama3_factors(scaling, theta, n):
    factors = []
    for i in range(n):
        wave = 2 * math.pi * theta ** (i / n)
        low, high = (scaling["original_max_position_embeddings"] / scaling[f"{edge}_freq_factor"] for edge in ("low", "high"))
        smooth = (scaling["original_max_position_embeddings"] / wave - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
        factors.append(1 if wave < high else scaling["factor"] if wave > low else 1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, np.float32)


def wanted_tensors(folder, config, architecture):
    """{GGUF name: array}."""
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    known = gguf.get_tensor_name_map(next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), layers)
    wanted = {}
    for name, array in with_experts_together(folder_tensors(folder), config).items():
        mapped = known.get_name(name, (".weight", ".bias")) or known.get_name(name.removeprefix("transformer."), (".weight", ".bias"))
        if mapped is None:
            raise SystemExit(f"the package gguf knows no {name} in {architecture}")
        wanted[mapped] = converted(name, array, config)
    if architecture in ("olmo2", "qwen2moe", "olmoe", "gpt-oss") and "output.weight" not in wanted:
        wanted["output.weight"] = wanted["token_embd.weight"]
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        heads_of = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        wanted["rope_freqs.weight"] = llama3_factors(scaling, config["rope_theta"], heads_of // 2)
    return wanted
