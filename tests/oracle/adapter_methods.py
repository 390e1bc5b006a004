#!/usr/bin/env python3
"""Runs strata's oracle_probe and PyTorch on the same models, adapters other than LoRA and batches, and compares.

    adapter_methods.py --probe PATH [--family NAME ...] [--method NAME ...] [--steps N] [--json]

Prompts and prefixes are made, saved, loaded and computed by PEFT on transformers; bottlenecks, which PEFT does not have,
are torch modules hooked into transformers. They compute in float64, strata in float32, and all values of an adapter are
random. Exit code: 0 if all figures are within LIMITS, 1 if one is not, 77 without PyTorch, transformers and PEFT."""
import json
import re
import sys

import adapter_table  # ends the program where PEFT is missing
import make_folders
import peft
import tensors
import torch
from adapters import adapter_tensors, base_of, by_norm, differing_bits, save_adapter, train
from compare import run_probe
from layers import mean_loss
from reference import Batches

LIMITS = {"logits": 1e-4, "gradients": 1e-4, "losses": 1e-3, "exported": 1e-3, "files": 0}  # as in adapters.py
TOKENS = 6  # fewer than a window has keys, and a row with them fits into every table of positions
METHODS = {
    "houlsby": dict(placement="attention_mlp", bottleneck=7, activation="gelu", scale=1.0),
    "pfeiffer": dict(placement="mlp", bottleneck=5, activation="relu", scale=0.5),
    "parallel": dict(placement="parallel", bottleneck=6, activation="gelu", scale=4.0),
    "prompt": peft.PromptTuningConfig,
    "p-tuning": peft.PromptEncoderConfig,
    "prefix": peft.PrefixTuningConfig,
}
ATTENTION_OUT = re.compile(r"attn\.c_proj|self_attn\.out_proj|self_attention\.dense|self_attn\.o_proj")
MLP_OUT = re.compile(r"mlp\.c_proj|fc2|mlp\.dense_4h_to_h|mlp\.down_proj")
MLP_IN = re.compile(r"mlp\.c_fc|fc1|mlp\.dense_h_to_4h|mlp\.gate_proj|mlp\.gate_up_proj")


def randomize(parameters, seed):
    """Random values that are float32 numbers."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_((torch.randn(parameter.shape, generator=random) * 0.3).float())


class Bottlenecks(torch.nn.Module):
    """A model with bottleneck adapters, which hooks add to the results of its linear layers."""

    def __init__(self, folder, settings, dtype=torch.float64):
        super().__init__()
        self.model, self.settings, self.parts = base_of(folder, dtype), settings, {}
        self.model.requires_grad_(False)
        parallel, operands = settings["placement"] == "parallel", {}
        for name, module in self.model.named_modules():
            layer = re.search(r"\.(\d+)\.(.*)", name)
            if layer is None:
                continue
            number, kind = layer.groups()
            if parallel and MLP_IN.fullmatch(kind):
                module.register_forward_pre_hook(lambda _, args, number=number: operands.__setitem__(number, args[0]))
            is_attention = settings["placement"] == "attention_mlp" and ATTENTION_OUT.fullmatch(kind)
            if is_attention or MLP_OUT.fullmatch(kind):
                part = self.add_part(f"layers.{number}.{'attn' if is_attention else 'mlp'}_adapter", dtype)
                module.register_forward_hook(
                    lambda _, args, y, part=part, number=number: y + self.change(part, operands[number] if parallel else y)
                )

    def add_part(self, name, dtype):
        hidden, width = self.model.config.hidden_size, self.settings["bottleneck"]
        part = {"down": torch.nn.Linear(hidden, width, dtype=dtype), "up": torch.nn.Linear(width, hidden, dtype=dtype)}
        for which, linear in part.items():
            self.parts |= {f"{name}.{which}.weight": linear.weight, f"{name}.{which}.bias": linear.bias}
        return part

    def change(self, part, x):
        inner = part["down"](x)
        active = inner.relu() if self.settings["activation"] == "relu" else torch.nn.functional.gelu(inner, approximate="tanh")
        return self.settings["scale"] * part["up"](active)

    def logits(self, tokens):
        return self.model(tokens).logits

    def trained(self):
        return self.parts

    def save(self, folder):
        folder.mkdir()
        config = dict(peft_type="BOTTLENECK", library="strata", **self.settings)
        (folder / "adapter_config.json").write_text(json.dumps(config))
        tensors.write(folder / "adapter_model.safetensors", {name: p.detach().float().numpy() for name, p in self.parts.items()})

    def load(self, folder):
        found = adapter_tensors(folder)
        assert set(found) == set(self.parts), set(found) ^ set(self.parts)
        with torch.no_grad():
            for name, parameter in self.parts.items():
                parameter.copy_(found[name])
        return self


class Virtual:
    """A model with virtual tokens of PEFT. What strata trains of P-tuning is the prompt that its encoder gives, since that is
    what PEFT saves. `prompt_dtype`: of the prompt or prefix, which PEFT keeps in float32 if it is not told otherwise."""

    def __init__(self, folder, kind, seed, load_from=None, dtype=torch.float64, prompt_dtype=None):
        base, prompt_dtype = base_of(folder, dtype), prompt_dtype or dtype
        if load_from is None:
            config = dict(task_type="CAUSAL_LM", num_virtual_tokens=TOKENS)
            if kind is peft.PrefixTuningConfig:  # PEFT takes hidden / heads for the width of a head
                model = base.config
                width = getattr(model, "head_dim", None) or model.hidden_size // model.num_attention_heads
                heads = getattr(model, "num_key_value_heads", None) or model.num_attention_heads
                config |= dict(token_dim=heads * width, num_attention_heads=heads)
            elif kind is peft.PromptEncoderConfig:
                config |= dict(encoder_hidden_size=11)
            self.model = peft.get_peft_model(base, kind(**config)).eval()
            self.model.prompt_encoder.to(prompt_dtype)
            randomize(self.model.prompt_encoder.parameters(), seed)
        else:
            self.model = peft.PeftModel.from_pretrained(base, load_from).eval()  # PEFT does not load it to train it
            self.model.prompt_encoder.to(prompt_dtype).requires_grad_()

    def logits(self, tokens):
        return self.model(tokens).logits[:, -tokens.shape[1] :]

    def trained(self):
        return {"prompt_embeddings": self.model.prompt_encoder["default"].embedding.weight}

    def save(self, folder):
        save_adapter(self.model, folder)


def make(folder, method, seed, load_from=None, dtype=torch.float64, prompt_dtype=None):
    """The model of `folder` with an adapter, of random values or of the folder `load_from`."""
    kind = METHODS[method]
    if isinstance(kind, dict):
        model = Bottlenecks(folder, kind, dtype)
        if load_from is not None:
            return model.load(load_from)
        randomize(model.parts.values(), seed)
        return model
    return Virtual(folder, kind, seed, load_from, dtype, prompt_dtype)


def compare(case, method, scratch, args):
    row = {"case": case.name, "adapter": method, "figures": {}, "problems": []}
    folder = scratch / case.name
    if not folder.exists():
        make_folders.make_case(case, folder, args.seed, own=False)
    model, figures = make(folder / "hf", method, args.seed), row["figures"]
    adapter, out = scratch / f"{case.name} {method}", scratch / f"{case.name} {method} out"
    model.save(adapter)
    args.adapter = adapter
    try:
        run_probe(folder, "whole", out, args.steps, args)
    except ValueError as error:
        row["problems"].append(str(error))
        return row
    batches = Batches(folder / "whole.safetensors")
    tokens, targets, _ = batches[0]
    with torch.no_grad():
        want = model.logits(tokens)
    got = torch.from_numpy(tensors.read(out / "logits.safetensors")["logits"].copy())
    figures["logits"] = ((got - want).abs().max() / want.abs().max()).item()
    figures["files"] = differing_bits(out / "same", adapter)
    # The folder that strata wrote of the adapter that it read is loaded again.
    model = make(folder / "hf", method, args.seed, out / "same")
    parameters = model.trained()
    loss = mean_loss(model.logits(tokens), targets)
    gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    figures["gradients"], row["worst"] = by_norm(adapter_tensors(out / "grads"), gradients)
    losses = train(model.logits, parameters, batches, args.steps, args.lr)
    ours = json.loads((out / "losses.json").read_text())["losses"]
    figures["losses"] = max(abs(a - b) / abs(b) for a, b in zip(ours, losses, strict=True))
    exported = make(folder / "hf", method, args.seed, out / "adapter")
    with torch.no_grad():
        want, got = model.logits(tokens), exported.logits(tokens)
    figures["exported"] = ((got - want).norm() / want.norm()).item()
    row["limits"] = LIMITS
    row["problems"] += adapter_table.above_limits(row)
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    adapter_table.add_probe(parser, steps=50)
    parser.add_argument("--method", nargs="+", metavar="NAME", choices=sorted(METHODS), help="methods to try (default: all)")
    args = parser.parse_args()
    args.probe, args.dtype, args.widened = args.probe.absolute(), "f32", False
    return adapter_table.run("adapter_methods", args, args.method or METHODS, compare, {"limits": LIMITS})


if __name__ == "__main__":
    sys.exit(main())
