#!/usr/bin/env python3
"""Passes tiny folders with a layer that predicts further tokens through runs of strata and back to transformers.

    extra_layers.py --strata PATH [--family NAME ...] [--json]

transformers writes the text models, with random weights and as many layers as the releases have, by whose number it knows the
tensors of the layer behind them. strata tunes each for a step and exports the run: with the layer, and without it (`--text-only`).
Compared are the layer's tensors with those of the first folder, byte by byte, and what config.json says of it; where the folder has
its matrices, and those of an index, in tiles of FP8, with what torch makes of these in bfloat16. transformers must
load all without keys that are missing or unexpected, and where it predicts further tokens itself (`use_mtp`), it must generate with
the export's layer what it generates without. Exit code: 0 if all is so, 1 if not, 77 without PyTorch, transformers and PEFT."""
import dataclasses
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import adapter_table  # ends the program where PEFT is missing
import make_folders
import torch
import transformers
from adapter_batch import strata
from expert_folders import TEXT, VOCAB, stored
from safetensors.torch import load_file, save_file

# Tensors of the layer that differ, or are not there; tokens that its use changes.
LIMITS = {"other_tensors": 0, "other_tokens": 0}
NEXT = "num_nextn_predict_layers"
# The layers of the releases; 0: the names of the layer are others, whatever the number.
FAMILIES = {"deepseek_v3": 61, "deepseek_v32": 61, "glm4_moe": 46, "glm4_moe_lite": 47, "glm_moe_dsa": 78, "qwen3_next": 0, "qwen3_5_text": 0,
            "nemotron_h": 0}  # fmt: skip
KEYS = {"qwen3_next": "mtp_num_hidden_layers", "qwen3_5_text": "mtp_num_hidden_layers"}
FP8 = ("deepseek_v3", "glm_moe_dsa", "qwen3_next")  # the families of which a case is quantized
TILES = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
DRAFTS = ("deepseek_v3", "glm4_moe")  # the families that transformers drafts with
RUN = ["data.train=text.txt", "data.val=", "model.seq=16", "train.steps=1", "optim.lr=0.01", "memory.device=256MiB", "memory.pinned=256MiB", "memory.nvme=0"]


def case_of(family):
    """The first case of the family, with as many layers as its releases."""
    case = next(case for case in make_folders.CASES if case.config["model_type"] == family)
    config = case.config | {"vocab_size": VOCAB, KEYS.get(family, NEXT): 1}
    if layers := FAMILIES[family]:
        config |= {"num_hidden_layers": layers, "hidden_size": 32, "n_routed_experts": 3, "n_group": 1, "topk_group": 1}
        for key in ("mlp_layer_types", "indexer_types"):
            if key in config:
                config[key] = config[key] + config[key][-1:] * (layers - len(config[key]))
    return dataclasses.replace(case, config=config)


def extra_tensors(tensors, family):
    """{name: tensor} of the layer: those of the last one in bfloat16, and what joins two tokens."""
    layers = FAMILIES[family]
    last = f"model.layers.{layers - 1}." if layers else next(name for name in tensors if ".layers.1." in name).split(".layers.")[0] + ".layers.1."
    new = f"model.layers.{layers}." if layers else "mtp.layers.0."
    hidden = next(tensor.shape[1] for name, tensor in tensors.items() if name.endswith(("embed_tokens.weight", "embeddings.weight")))
    made = {new + name.removeprefix(last): torch.randn_like(tensor.float()) / 8 for name, tensor in tensors.items() if name.startswith(last)}
    made |= {new + "eh_proj.weight": torch.randn(hidden, 2 * hidden) / 8}
    made |= {new + name: torch.rand(hidden) for name in ("enorm.weight", "hnorm.weight", "shared_head.norm.weight")}
    return {name: tensor if name.endswith("e_score_correction_bias") else tensor.bfloat16() for name, tensor in made.items()}


def quantized(tensors):
    """Each matrix of bfloat16 as one tile of FP8, and what that stands for in bfloat16: ({name: tensor}, {name: tensor})."""
    stored, meant = {}, {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or tensor.dtype != torch.bfloat16:
            stored[name] = meant[name] = tensor
            continue
        scale = tensor.float().abs().max() / 448
        stored[name] = (tensor.float() / scale).to(torch.float8_e4m3fn)
        stored[name + "_scale_inv"] = scale.reshape(1, 1)
        meant[name] = (stored[name].float() * scale).bfloat16()
    return stored, meant


def write(args, case, folder):
    """Returns the names of the tensors that the text model has not."""
    torch.manual_seed(args.seed)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**case.config))
    model.save_pretrained(folder / "source")
    tensors = load_file(folder / "source" / "model.safetensors")
    extra = extra_tensors(tensors, case.config["model_type"])
    config = json.loads((folder / "source" / "config.json").read_text()) | {KEYS.get(case.config["model_type"], NEXT): 1}
    stored, meant = extra, extra
    if case.name.endswith("-fp8"):
        extra |= {name: tensor.bfloat16() for name, tensor in tensors.items() if ".indexer." in name}
        tensors = {name: tensor for name, tensor in tensors.items() if name not in extra}
        stored, meant = quantized(extra)
        config["quantization_config"] = TILES
    save_file(tensors | stored, folder / "source" / "model.safetensors", {"format": "pt"})
    (folder / "source" / "config.json").write_text(json.dumps(config))
    (folder / "want").mkdir()
    save_file(meant, folder / "want" / "model.safetensors", {"format": "pt"})
    (folder / "want" / "config.json").write_text("{}")
    (folder / "text.txt").write_text(TEXT * 30)
    strata(args, ["tokenizer", "train", "text.txt", "--vocab", VOCAB, "--out", "source/tokenizer.json"], folder)
    return set(meant)


def load(folder):
    load_model = transformers.AutoModelForCausalLM.from_pretrained
    model, report = load_model(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise ValueError(f"transformers loads {folder.name} with {report}")
    return model.eval()


def generated(model, **how):
    return model.generate(torch.arange(5, 13)[None], do_sample=False, max_new_tokens=12, eos_token_id=None, pad_token_id=0, **how)[0].tolist()


def compare(case, _, scratch, args):
    row = {"case": case.name, "figures": {}, "problems": [], "limits": dict(LIMITS)}
    family, folder = case.config["model_type"], scratch / case.name
    folder.mkdir()
    try:
        extra = write(args, case, folder)
        is_fp8 = case.name.endswith("-fp8")  # which transformers computes on GPUs alone
        if not is_fp8:
            load(folder / "source")
        strata(args, ["train", "--init", "source", "--out", "run", *RUN], folder)
        strata(args, ["export", "run", "--out", "hf", "--check", *(["--dtype", "bf16"] if is_fp8 else [])], folder)
        strata(args, ["export", "run", "--out", "text", "--check", "--text-only"], folder)
        model = load(folder / "hf")
        load(folder / "text")
    except ValueError as error:
        row["problems"].append(str(error))
        return row
    was, now, alone = (stored(folder / name) for name in ("want", "hf", "text"))
    row["figures"]["other_tensors"] = sum(was[name] != now.get(name) for name in extra) + len(extra & alone.keys())
    drafted = generated(model, use_mtp=True) if family in DRAFTS else []
    row["figures"]["other_tokens"] = sum(a != b for a, b in zip(drafted, generated(model), strict=False))
    for name, want in (("hf", 1), ("text", 0)):
        if (says := json.loads((folder / name / "config.json").read_text()).get(KEYS.get(family, NEXT), 0)) != want:
            row["problems"].append(f"config.json of {name} says {says} layers, not {want}")
    row["problems"] += adapter_table.above_limits(row)
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    parser.add_argument("--strata", type=pathlib.Path, required=True, metavar="PATH", help="the program strata")
    args = parser.parse_args()
    args.strata = args.strata.absolute()
    chosen = [case_of(family) for family in FAMILIES if not args.family or family in args.family]
    chosen += [dataclasses.replace(case, name=case.name + "-fp8") for case in chosen if case.config["model_type"] in FP8]
    return adapter_table.run("extra_layers", args, [None], compare, {"limits": LIMITS}, chosen)


if __name__ == "__main__":
    sys.exit(main())
