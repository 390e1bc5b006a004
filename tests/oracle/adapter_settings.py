#!/usr/bin/env python3
"""Runs strata's oracle_probe and PEFT on folders of PEFT with each way of saying which modules have an adapter, and what is
trained beside them: names, regular expressions, exclusions, layers, patterns, embeddings, heads, saved modules, biases.

    adapter_settings.py --probe PATH [--family NAME ...] [--adapter NAME ...] [--json]

Of every folder strata's logits in float32 are those of PEFT in float64, by the norm, within LIMIT or ROUNDINGS times the error of
PEFT's own in float32; the folder that strata writes of it has the same bits and keys, and PEFT's logits with it are the same.
Or strata refuses the folder, naming a key of its adapter_config.json that is not at its default. Exit codes as adapters.py's."""
import json
import re
import sys

import adapter_table  # ends the program where PEFT is missing
import adapters
import make_folders
import peft
import tensors
import torch
from compare import run_probe
from reference import Batches

LIMIT, ROUNDINGS = 3e-7, 1.5
NAMES = ("names", "absent names", "regex", "lookahead", "whole name", "exclude", "exclude regex", "layers", "layers and a whole name",
         "first pattern", "dropout", "dropout dora", "embedding", "head", "embedding and head", "saved head", "saved tables", "saved norm",
         "bias", "bias of adapters", "new tokens", "tokens by name", "tokens of the head", "tokens of both", "tokens and dropout",
         "tokens and a saved head", "tokens and a head", "experts", "experts alone", "experts of a layer", "experts and a pattern")  # fmt: skip
FAMILIES = ("gpt2-bare", "gpt2-untied", "opt", "bloom", "llama", "llama-biased", "qwen2", "qwen2-untied", "gemma3", "phi3", "qwen2_moe", "qwen3_moe", "olmoe",
            "mixtral")


def settings_of(base):
    """{name: keyword arguments of LoraConfig} for this model."""
    names = [name for name, module in base.named_modules() if module.__class__.__name__ in adapters.LINEAR and name != "lm_head"]
    kinds = sorted({name.rsplit(".", 1)[1] for name in names})
    table = next(name for name, module in base.named_modules() if module is base.get_input_embeddings())
    norm = [name for name, module in base.named_modules() if "Norm" in type(module).__name__][-1]
    one, last = names[0], table.rsplit(".", 1)[1]
    listed = {"target_modules": kinds}
    both = {"target_parameters": adapters.EXPERTS}
    of_layer = f"{names[0].split('.self_attn')[0]}.mlp.{adapters.EXPERTS[1]}"
    return {
        "names": {"target_modules": [kinds[0], one]},
        "absent names": {"target_modules": [kinds[0], "no_such_proj"], "rank_pattern": {"no_such": 9}},
        "regex": {"target_modules": rf".*\.(0|[2-9])\..*\.({'|'.join(kinds)})"},
        "lookahead": {"target_modules": rf"^(?!.*{kinds[-1]}).*\.\d\..*(?:{'|'.join(kinds)})$"},
        "whole name": {"target_modules": one.replace(".", r"\.")},
        "exclude": listed | {"exclude_modules": [kinds[0], one]},
        "exclude regex": listed | {"exclude_modules": r".*\.1\..*"},
        "layers": listed | {"layers_to_transform": [1]},
        "layers and a whole name": {"target_modules": [kinds[0], one], "layers_to_transform": 1},
        "first pattern": listed | {"rank_pattern": {r"1\..*": 3, kinds[0]: 2}, "alpha_pattern": {kinds[0][:2] + ".*": 24.0, kinds[0]: 2.0}},
        "dropout": listed | {"lora_dropout": 0.1},
        "dropout dora": listed | {"lora_dropout": 0.1, "use_dora": True},
        "embedding": {"target_modules": [kinds[0], last]},
        "head": {"target_modules": [kinds[0], "lm_head"]},
        "embedding and head": {"target_modules": [last, "lm_head"], "use_rslora": True},
        "saved head": {"target_modules": [kinds[0]], "modules_to_save": ["lm_head"]},
        "saved tables": listed | {"modules_to_save": [last, "lm_head"]},
        "saved norm": {"target_modules": [kinds[0]], "modules_to_save": [norm]},
        "bias": listed | {"bias": "all"},
        "bias of adapters": listed | {"bias": "lora_only"},
        "new tokens": {"target_modules": [kinds[0]], "trainable_token_indices": [3, 7]},
        "tokens by name": listed | {"trainable_token_indices": {last: [7, 3, 12]}, "use_dora": True},
        "tokens of the head": {"target_modules": [kinds[0]], "trainable_token_indices": {"lm_head": [9, 3]}},
        "tokens of both": {"target_modules": [kinds[0]], "trainable_token_indices": {table: [3, 7], "lm_head": [7, 3, 11]}},
        "tokens and dropout": listed | {"trainable_token_indices": [3, 7], "lora_dropout": 0.1},
        "tokens and a saved head": {"target_modules": [kinds[0]], "trainable_token_indices": [3, 7], "modules_to_save": ["lm_head"]},
        "experts": listed | both,
        "experts alone": {"target_modules": []} | both,
        "experts of a layer": {"target_modules": [kinds[0]], "target_parameters": [of_layer, adapters.EXPERTS[0]]},
        "experts and a pattern": listed | both | {"rank_pattern": {".*experts.*": 2}, "alpha_pattern": {adapters.EXPERTS[0]: 3.0}},
        "tokens and a head": {"target_modules": [kinds[0], "lm_head"], "trainable_token_indices": [3, 7]},
    }


def write(at, base, settings, seed):
    """A model of PEFT with random values, and its folder in float32."""
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=6, **settings)).eval()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_((parameter + 0.05 * torch.randn(parameter.shape, generator=random)).float())
    adapters.save_adapter(model, at)


def logits_of(folder, adapter, tokens, dtype):
    model = peft.PeftModel.from_pretrained(adapters.base_of(folder, dtype), adapter, autocast_adapter_dtype=False).eval().to(dtype)
    with torch.no_grad():
        return model(tokens).logits.double()


def can_reload(folder, adapter):
    """Whether PEFT reads the folder that it wrote: where it translates targets of experts, it adds a pattern of ranks behind those
    that it was given, and the file has them sorted, so that another one may match first."""
    try:
        peft.PeftModel.from_pretrained(adapters.base_of(folder), adapter)
    except RuntimeError as error:
        return "size mismatch" not in str(error)
    return True


def reason_in(message, config):
    """The key of adapter_config.json that the message names, if it says something else than the default."""
    default = peft.LoraConfig(task_type="CAUSAL_LM").to_dict()
    changed = [key for key, value in config.items() if value != default.get(key)]
    return next((key for key in changed if re.search(rf"\b{key}\b", message)), None)


def compare(case, name, scratch, args):
    row = {"case": case.name, "adapter": name, "figures": {}, "problems": [], "limits": {}}
    folder = scratch / case.name
    if not folder.exists():
        make_folders.make_case(case, folder, args.seed, own=False)
    if name.startswith("experts") and not adapters.is_mixture(case.config):
        return row
    adapter, out = scratch / f"{case.name} {name}", scratch / f"{case.name} {name} out"
    base = adapters.base_of(folder / "hf")
    try:
        write(adapter, base, settings_of(base)[name], args.seed)
    except ValueError as error:
        if "ParamWrapper does not work with" not in str(error):
            raise
        return row  # PEFT has no such adapter of experts
    args.adapter = adapter
    try:
        run_probe(folder, "whole", out, 0, args)
    except ValueError as error:
        if name.startswith(("experts", "first")) and not can_reload(folder / "hf", adapter):
            return row
        row["refused"] = reason_in(str(error), json.loads((adapter / "adapter_config.json").read_text()))
        return row if row["refused"] else row | {"problems": [str(error)]}
    tokens = Batches(folder / "whole.safetensors")[0][0]
    want, own = logits_of(folder / "hf", adapter, tokens, torch.float64), logits_of(folder / "hf", adapter, tokens, torch.float32)
    got = torch.from_numpy(tensors.read(out / "logits.safetensors")["logits"].copy()).double()
    by_norm = lambda found: ((found - want).norm() / want.norm()).item()  # noqa: E731
    again = logits_of(folder / "hf", out / "same", tokens, torch.float64)
    row["figures"] = {"logits": by_norm(got), "torch": by_norm(own), "files": adapters.differing_bits(out / "same", adapter) + int((again != want).sum())}
    row["limits"] = {"logits": max(LIMIT, ROUNDINGS * row["figures"]["torch"]), "files": 0}
    row["problems"] += adapter_table.above_limits(row)
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    adapter_table.add_probe(parser)
    parser.add_argument("--adapter", nargs="+", metavar="NAME", dest="adapters", help="adapters to try")
    args = parser.parse_args()
    args.probe, args.dtype, args.widened, args.lr, args.family = args.probe.absolute(), "f32", False, 0, args.family or list(FAMILIES)
    return adapter_table.run("adapter_settings", args, args.adapters or NAMES, compare, {"limit": LIMIT})


if __name__ == "__main__":
    sys.exit(main())
