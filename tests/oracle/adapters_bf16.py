#!/usr/bin/env python3
"""Compares the bfloat16 errors of strata's adapters with those of PEFT and torch, both measured against these in float64.

    adapters_bf16.py --probe PATH [--family NAME ...] [--adapter NAME ...] [--seeds N] [--peft-dtype f32|bf16] [--json]

Adapters are those of adapters.py and adapter_methods.py. An error is that of the logits by the maximum, and of the gradient of
each kind of tensor (A, B, magnitudes; matrices and biases of bottlenecks; prompts and prefixes) by its norm over the model.
The weights and the adapter are bfloat16 numbers. An error is the root mean square over several seeds, as rounding errors
of a tiny model are random. PEFT keeps the parameters of an adapter over a bfloat16 base in float32 unless it is told
otherwise; strata computes with all of them in bfloat16, but for magnitudes. Exit code: as that of adapters.py."""
import copy
import math
import sys

import adapter_methods
import adapter_table  # ends the program where PEFT is missing
import adapters
import make_folders
import numpy as np
import peft
import tensors
import torch
from compare import run_probe
from layers import mean_loss
from reference import Batches

LIMIT = 1.5  # strata's error / PEFT's error
KINDS = {"lora_A": "A", "lora_B": "B", "lora_magnitude_vector": "magnitude", "prompt_embeddings": "prompt"}


class Lora:
    """A model of PEFT with LoRA or DoRA, in the form of adapter_methods.make()."""

    def __init__(self, model):
        self.model = model

    def logits(self, tokens):
        return self.model(tokens).logits

    def trained(self):
        return adapters.trained(self.model)


def kind_of(name):
    known = [KINDS[part] for part in name.split(".") if part in KINDS]
    return known[0] if known else ".".join(name.split(".")[-2:])  # "down.weight"


def by_kind(gradients):
    kinds = {}
    for name in sorted(gradients):
        kinds.setdefault(kind_of(name), []).append(gradients[name].double().reshape(-1))
    return {kind: torch.cat(parts) for kind, parts in kinds.items()}


def results_of(model, tokens, targets):
    """(logits, {kind: gradient}) in float64."""
    logits = model.logits(tokens)
    parameters = model.trained()
    gradients = torch.autograd.grad(mean_loss(logits.to(torch.promote_types(logits.dtype, torch.float32)), targets), list(parameters.values()))
    return logits.detach().double(), by_kind(dict(zip(parameters, gradients, strict=True)))


def lora_models(folder, case, name, seed, path, peft_dtype):
    """The model in float64 and its peer in bfloat16; the folder of the adapter is written to `path`."""
    truth = adapters.make_adapter(folder, case.config["model_type"], adapters.CASES[name], seed)
    with torch.no_grad():
        for parameter in adapters.trained(truth).values():
            parameter.copy_(parameter.bfloat16())
    adapters.save_adapter(truth, path)
    base = adapters.base_of(folder, torch.bfloat16)
    peer = peft.PeftModel.from_pretrained(base, path, is_trainable=True, autocast_adapter_dtype=peft_dtype == "f32").eval()
    return Lora(truth), Lora(peer.bfloat16() if peft_dtype == "bf16" else peer)


def clearly_on_or_off(name, value):
    """Values with which every other ReLU unit is on, by more than rounding. One that is 0 up to rounding is on in one program and
    off in the other: its gradient jumps, which says nothing of an error."""
    if name.endswith(".down.bias"):
        return np.where(np.arange(len(value)) % 2 == 0, 1, -1).astype("float32")
    return value / 16 if name.endswith(".down.weight") else value


def method_models(folder, name, seed, path, peft_dtype):
    """The same for other methods. Of P-tuning, strata computes the prompt that its encoder gave."""
    adapter_methods.make(folder, name, seed).save(path)
    file = path / "adapter_model.safetensors"
    values = {name: tensors.as_bf16(array) for name, array in tensors.read(file).items()}
    if "relu" in (path / "adapter_config.json").read_text():
        values = {key: clearly_on_or_off(key, value) for key, value in values.items()}
    file.unlink()
    tensors.write(file, values)
    truth = adapter_methods.make(folder, name, seed, path)
    dtype = torch.float32 if peft_dtype == "f32" else torch.bfloat16
    return truth, adapter_methods.make(folder, name, seed, path, torch.bfloat16, dtype)


def errors_of(case, name, seed, scratch, args):
    """{what: (strata's error, PEFT's error)}"""
    folder = scratch / f"{case.name} {seed}"
    if not folder.exists():
        make_folders.make_case(case, folder, seed, own=False, of_bf16=True)
    args.adapter, out = folder / name, folder / f"{name} out"
    if name in adapters.CASES:
        truth, peer = lora_models(folder / "hf", case, name, seed, args.adapter, args.peft_dtype)
    else:
        truth, peer = method_models(folder / "hf", name, seed, args.adapter, args.peft_dtype)
    run_probe(folder, "whole", out, 0, args)
    tokens, targets, _ = Batches(folder / "whole.safetensors")[0]
    want, want_gradients = results_of(truth, tokens, targets)
    theirs, their_gradients = results_of(peer, tokens, targets)
    ours = torch.from_numpy(tensors.read(out / "logits.safetensors")["logits"].copy()).double()
    our_gradients = by_kind(adapters.adapter_tensors(out / "grads"))
    errors = {"logits": tuple(((got - want).abs().max() / want.abs().max()).item() for got in (ours, theirs))}
    for kind, gradient in want_gradients.items():
        errors[kind] = tuple(((got[kind] - gradient).norm() / gradient.norm()).item() for got in (our_gradients, their_gradients))
    return errors


def compare(case, name, scratch, args):
    args = copy.copy(args)
    row = {"case": case.name, "adapter": name, "figures": {}, "errors": {}, "problems": []}
    n_seeds = args.seeds * (2 if case.config["model_type"] == "opt" else 1)  # whose own units are ReLU: README.md
    try:
        by_seed = [errors_of(case, name, seed, scratch, args) for seed in range(args.seed, args.seed + n_seeds)]
    except ValueError as error:
        row["problems"].append(str(error))
        return row
    row["limits"] = dict.fromkeys(by_seed[0], LIMIT)
    for what in by_seed[0]:
        ours, theirs = (math.sqrt(sum(errors[what][side] ** 2 for errors in by_seed) / len(by_seed)) for side in (0, 1))
        row["figures"][what], row["errors"][what] = ours / theirs, (ours, theirs)
        if not ours <= LIMIT * theirs:
            row["problems"].append(f"{what}: the error {ours:.2g} is {ours / theirs:.2g} of PEFT's {theirs:.2g}; the limit is {LIMIT}")
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    adapter_table.add_probe(parser)
    names = [*adapters.CASES, *adapter_methods.METHODS]
    parser.add_argument("--adapter", nargs="+", metavar="NAME", choices=names, dest="adapters",
                        default=["all-linear", "all-linear dora", *adapter_methods.METHODS], help="adapters to try")  # fmt: skip
    parser.add_argument("--peft-dtype", choices=["f32", "bf16"], default="f32", help="of PEFT's adapters (default: f32, as PEFT's)")
    parser.add_argument("--widened", action="store_true", help="compute bf16 GEMMs as on a CPU without bf16 instructions")
    parser.add_argument("--seeds", type=int, default=6, help="number of models per figure, from --seed on; of OPT twice as many")
    args = parser.parse_args()
    args.probe, args.dtype, args.lr = args.probe.absolute(), "bf16", 0.0
    return adapter_table.run("adapters_bf16", args, args.adapters, compare, {"limit": LIMIT}, digits=".2f")


if __name__ == "__main__":
    sys.exit(main())
