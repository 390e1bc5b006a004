#!/usr/bin/env python3
"""Passes tiny folders of mixtures of experts through strata and back to transformers.

    expert_folders.py --strata PATH --probe PATH [--family NAME ...] [--json]

transformers writes each of them in every form that it knows: a matrix for each expert, stacks of those of all experts
(`save_original_format=False`), and transposed stacks in which gates and ups take turns; in float32 and in bfloat16. Compared are
strata's logits with those of transformers, and those of transformers for the folder that strata writes of it, the tensors of
both folders, byte by byte, also where a run that learns nothing lies between, and what is left of them where an adapter is
merged into some. Exit code: 0 if all figures are
within LIMITS, 1 if one is not, 77 without PyTorch, transformers and PEFT."""
import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import adapter_table  # ends the program where PEFT is missing
import adapters
import make_folders
import tensors
import torch
import transformers
from adapter_batch import strata
from compare import run_probe
from reference import Batches

# The largest difference of logits / the largest logit, of float32 from float32; tensors whose names, dtypes, shapes or bytes
# are others, also after a run with a learning rate of 0; and of the folder with a merged adapter the same, its targets left out.
LIMITS = {"logits": 4e-5, "back": 4e-5, "other_tensors": 0, "other_of_run": 0, "merged": 4e-5, "other_untouched": 0}
VOCAB = 300  # `strata export` and `strata train` need a tokenizer
TEXT = "It is a truth universally acknowledged, that a single man in possession of a good fortune must be in want of a wife. "
EACH, STACKS, TURNS = "each", "stacks", "turns"
FAMILIES = {"qwen2_moe": (EACH, STACKS), "qwen3_moe": (EACH, STACKS), "olmoe": (EACH, STACKS), "mixtral": (EACH, STACKS), "glm4_moe": (EACH, STACKS),
            "gpt_oss": (TURNS,)}  # fmt: skip
# Which tensor of layer 0 shows the form, by the family's name for the module of experts.
SHOWN = {EACH: ".experts.0.", STACKS: "mlp.experts.gate_up_proj", TURNS: "mlp.experts.gate_up_proj_bias"}
RUN = ["data.val=", "model.seq=16", "train.steps=1", "optim.lr=0", "memory.device=256MiB", "memory.pinned=256MiB", "memory.nvme=0"]
MERGED = dict(r=4, lora_alpha=8, target_modules=["q_proj"], target_parameters=["experts.down_proj"])
TARGETS = ("q_proj.weight", "experts.down_proj", "down_proj.weight", "w2.weight")  # their names in the forms of files


def cases():
    """[(case, form)]: the first case of each family, written in each form."""
    by_family = {case.config["model_type"]: case for case in reversed(make_folders.CASES) if case.saved and not case.stacked}
    return [(by_family[family], form) for family, forms in FAMILIES.items() for form in forms]


def write(args, case, form, dtype, folder):
    case = dataclasses.replace(case, config=case.config | {"vocab_size": VOCAB})
    make_folders.make_case(case, folder / "plain", args.seed, own=True, of_bf16=True)
    model = load(folder / "plain" / "hf", dtype)
    model.save_pretrained(folder / "hf", save_original_format=form != STACKS)
    (folder / "text.txt").write_text(TEXT * 30)
    strata(args, ["tokenizer", "train", "text.txt", "--vocab", str(VOCAB), "--out", "hf/tokenizer.json"], folder)
    if not any(SHOWN[form] in name for name in tensors.read_folder(folder / "hf")[1]):
        raise SystemExit(f"transformers {transformers.__version__} does not write {case.name} in the form {form}")


def load(folder, dtype=torch.float32):
    load_model = transformers.AutoModelForCausalLM.from_pretrained
    model, report = load_model(folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise ValueError(f"transformers loads {folder.name} with {report}")
    return model.eval()


def logits_of(model, tokens):
    with torch.no_grad():
        return model(tokens).logits


def by_max(got, want):
    return ((got - want).abs().max() / want.abs().max()).item()


def stored(folder):
    """{name: (dtype, shape, bytes)} of a folder with one file."""
    read = tensors.read_folder(folder, with_types=True)[1]
    # bf16 widens exactly. transformers writes GLM's routers in float32, where releases and strata have bf16.
    kinds = {name: "F32" if name.endswith("mlp.gate.weight") else kind for name, (_, kind) in read.items()}
    return {name: (kinds[name], array.shape, array.tobytes()) for name, (array, _) in read.items()}


def others(got, want, changed=()):
    """Tensors that differ, or that one of the folders lacks; those whose names end with one of `changed` may have other bytes."""
    differing = set(got) ^ set(want)
    for name in set(got) & set(want):
        compared = 2 if name.endswith(changed) else 3
        if got[name][:compared] != want[name][:compared]:
            differing.add(name)
    return len(differing)


def merge(args, folder):
    """(the adapted model of PEFT, the folder into which strata merged the adapter)."""
    model = adapters.random_adapter(load(folder / "hf"), MERGED, args.seed)
    adapters.save_adapter(model, folder / "adapter")
    strata(args, ["export", "hf", "--out", "merged", "--adapter", "adapter", "--format", "merged"], folder)
    return model, folder / "merged"


def compare(of, dtype, scratch, args):
    case, form = of
    row = {"case": f"{case.name} {form}", "adapter": str(dtype).removeprefix("torch."), "figures": {}, "problems": [], "limits": dict(LIMITS)}
    folder, figures = scratch / f"{case.name}-{form}-{row['adapter']}", row["figures"]
    write(args, case, form, dtype, folder)
    (folder / "whole.safetensors").write_bytes((folder / "plain" / "whole.safetensors").read_bytes())
    tokens = Batches(folder / "whole.safetensors")[0][0]
    want = logits_of(load(folder / "hf"), tokens)
    try:
        run_probe(folder, "whole", folder / "out", 0, args)
        figures["logits"] = by_max(torch.from_numpy(tensors.read(folder / "out" / "logits.safetensors")["logits"].copy()), want)
        as_it_was = ["--dtype", {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]]
        strata(args, ["export", "hf", "--out", "back", *as_it_was], folder)
        figures["back"] = by_max(logits_of(load(folder / "back"), tokens), want)
        figures["other_tensors"] = others(stored(folder / "back"), stored(folder / "hf"))
        strata(args, ["train", "--init", "hf", "--out", "run", "data.train=text.txt", *RUN], folder)
        strata(args, ["export", "run", "--out", "of-run", *as_it_was], folder)
        figures["other_of_run"] = others(stored(folder / "of-run"), stored(folder / "hf"))
        if dtype == torch.float32:
            model, merged = merge(args, folder)
            figures["merged"] = by_max(logits_of(load(merged), tokens), logits_of(model, tokens))
            figures["other_untouched"] = others(stored(merged), stored(folder / "hf"), TARGETS)
        else:
            row["limits"] = {name: limit for name, limit in LIMITS.items() if name not in ("merged", "other_untouched")}
    except ValueError as error:
        row["problems"].append(str(error))
        return row
    row["problems"] += adapter_table.above_limits(row)
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    adapter_table.add_probe(parser)
    parser.add_argument("--strata", type=pathlib.Path, required=True, metavar="PATH", help="the program strata")
    args = parser.parse_args()
    args.probe, args.strata, args.dtype, args.lr, args.widened = args.probe.absolute(), args.strata.absolute(), "f32", 0.0, False
    chosen = [(case, form) for case, form in cases() if not args.family or case.name in args.family]
    return adapter_table.run("expert_folders", args, (torch.float32, torch.bfloat16), compare, {"limits": LIMITS}, chosen)


if __name__ == "__main__":
    sys.exit(main())
