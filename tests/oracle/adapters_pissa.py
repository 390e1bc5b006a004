#!/usr/bin/env python3
"""Runs strata's oracle_probe and PEFT with adapters that start as PiSSA on the same models and batches, and compares.

    adapters_pissa.py --probe PATH [--family NAME ...] [--steps N] [--json]

PEFT writes the residual into the base in float32 and then computes in float64; strata leaves the base as it is, and computes
in float32. The signs of singular vectors, which no step depends on, are those of PEFT in what is compared. Exit code: 0 if
all figures are within LIMITS, 1 if one is not, 77 without PyTorch, transformers and PEFT."""
import contextlib
import json
import sys

import adapter_table  # ends the program where PEFT is missing
import adapters
import make_folders
import peft
import tensors
import torch
from compare import run_probe
from layers import mean_loss
from reference import Batches

# `base`: of the logits at the start, against those of the base. `start`: of A and B against PEFT's, by norm. The others are
# those of adapters.py.
LIMITS = {"base": 1e-4, "start": 1e-4, "gradients": 1e-4, "losses": 1e-3, "exported": 1e-3}
CASES = {
    "default": dict(r=4, lora_alpha=8),
    "all-linear": dict(r=3, lora_alpha=6, target_modules="all-linear"),
    "all-linear rslora": dict(r=4, lora_alpha=6, target_modules="all-linear", use_rslora=True),
}
FAMILIES = ["gpt2", "llama", "qwen2"]


@contextlib.contextmanager
def svd_in_double():
    """PEFT's SVD in float32 loses four digits of singular vectors whose values are close."""
    svd = torch.linalg.svd
    torch.linalg.svd = lambda weight, **options: tuple(part.float() for part in svd(weight.double(), **options))
    try:
        yield
    finally:
        torch.linalg.svd = svd


def make_pissa(folder, family, settings, dtype=torch.float64):
    """PEFT's model, whose base it makes the residual in float32."""
    settings = adapters.with_targets(settings, family)
    base = adapters.base_of(folder, torch.float32)
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights="pissa", **settings)
    with svd_in_double():
        return peft.get_peft_model(base, config).eval().to(dtype)


def with_signs_of(start, tensors_of_module, want):
    """The tensors {name: A [r, in] or B [out, r]} with the signs that make `start` agree with `want`."""
    signed = {}
    for name, tensor in tensors_of_module.items():
        a = name.replace(".lora_B.", ".lora_A.")
        signs = (start[a].double() * want[a]).sum(1).sign()
        signed[name] = tensor * (signs[:, None] if name == a else signs[None, :])
    return signed


def compare(case, name, scratch, args):
    row = {"case": case.name, "adapter": name, "figures": {}, "problems": [], "limits": LIMITS}
    folder, family = scratch / case.name, case.config["model_type"]
    if not folder.exists():
        make_folders.make_case(case, folder, args.seed, own=False)
    adapter, out = scratch / f"{case.name} {name}", scratch / f"{case.name} {name} out"
    adapters.save_adapter(adapters.make_adapter(folder / "hf", family, CASES[name], args.seed), adapter)  # for its settings
    args.adapter = adapter
    try:
        run_probe(folder, "whole", out, args.steps, args)
    except ValueError as error:
        row["problems"].append(str(error))
        return row
    figures, batches = row["figures"], Batches(folder / "whole.safetensors")
    tokens, targets, _ = batches[0]
    with torch.no_grad():
        want = adapters.base_of(folder / "hf")(tokens).logits
    got = torch.from_numpy(tensors.read(out / "logits.safetensors")["logits"].copy())
    figures["base"] = ((got - want).abs().max() / want.abs().max()).item()
    model = make_pissa(folder / "hf", family, CASES[name])
    parameters = adapters.trained(model)
    first = {key: p.detach().clone() for key, p in parameters.items()}
    start = adapters.adapter_tensors(out / "start")
    figures["start"], _ = adapters.by_norm(with_signs_of(start, start, first), first)
    gradients = torch.autograd.grad(mean_loss(model(tokens).logits, targets), list(parameters.values()))
    ours = with_signs_of(start, adapters.adapter_tensors(out / "grads"), first)
    figures["gradients"], row["worst"] = adapters.by_norm(ours, dict(zip(parameters, gradients, strict=True)))
    losses = adapters.train_peft(model, batches, args.steps, args.lr)
    ours = json.loads((out / "losses.json").read_text())["losses"]
    figures["losses"] = max(abs(a - b) / abs(b) for a, b in zip(ours, losses, strict=True))
    exported = peft.PeftModel.from_pretrained(adapters.base_of(folder / "hf"), out / "adapter")
    with torch.no_grad():
        want, got = model(tokens).logits, exported(tokens).logits
    figures["exported"] = ((got - want).norm() / want.norm()).item()
    row["problems"] += adapter_table.above_limits(row)
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    parser.set_defaults(family=FAMILIES)
    adapter_table.add_probe(parser, steps=50)
    parser.add_argument("--adapter", nargs="+", metavar="NAME", choices=sorted(CASES), dest="adapters", help="adapters to try")
    args = parser.parse_args()
    args.probe, args.dtype, args.widened, args.pissa = args.probe.absolute(), "f32", False, True
    return adapter_table.run("adapters_pissa", args, args.adapters or CASES, compare, {"limits": LIMITS})


if __name__ == "__main__":
    sys.exit(main())
