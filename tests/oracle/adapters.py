#!/usr/bin/env python3
"""Runs strata's oracle_probe and PEFT with transformers on the same models, adapters and batches, and compares.

    adapters.py --probe PATH [--family NAME ...] [--steps N] [--json]

PEFT makes the adapter and writes its folder, with random values also in B, so that a transposed or permuted matrix
shows. transformers and PEFT compute in float64, strata in float32. Each family has the adapters of CASES. With --base
bitsandbytes quantizes the folder, which both read as it is; then both compute in float32. Exit code: 0 if all figures
are within LIMITS, 1 if one is not, 77 without PyTorch, transformers, PEFT and, for --base, bitsandbytes."""
import json
import re
import shutil
import sys

import adapter_table  # ends the program where PEFT is missing
import make_folders
import peft
import tensors
import torch
import transformers
from compare import run_probe
from layers import mean_loss
from reference import BETAS, CLIP, DECAY, EPS, Batches

try:
    import bitsandbytes
    import bitsandbytes.functional as functional
except ImportError:
    bitsandbytes = None  # only --base needs it

# The limits are by the largest difference / the largest value, also of the folder that strata merged; by the norm of the worst tensor; and of the worst of
# all steps. `files`: bits in which the exported folder differs from the one that was read, and missing or unexpected keys.
LIMITS = {"logits": 1e-4, "merged": 1e-5, "gradients": 1e-4, "losses": 1e-3, "exported": 1e-3, "files": 0}
EXPERTS = ["experts.down_proj", "experts.gate_up_proj"]
CASES = {
    "default": dict(r=4, lora_alpha=8),
    "default rslora": dict(r=5, lora_alpha=8, use_rslora=True),
    "all-linear": dict(r=4, lora_alpha=6, target_modules="all-linear"),
    "all-linear rslora": dict(r=3, lora_alpha=6, target_modules="all-linear", use_rslora=True),
    "patterns": dict(r=4, lora_alpha=8, target_modules="all-linear", patterns=True),  # see with_patterns()
    "default dora": dict(r=4, lora_alpha=8, use_dora=True),
    "all-linear dora": dict(r=4, lora_alpha=6, target_modules="all-linear", use_dora=True),
    "names": dict(r=4, lora_alpha=8, names=True),  # see with_names()
    "regex": dict(r=4, lora_alpha=8, target_modules=r".*\.\d+\..*(q|v|up|qkv|dense|fc1|c_attn|query_key_value)(_proj|_h_to_4h)?"),
    "embedding": dict(r=4, lora_alpha=8, tables="embedding"),
    "head": dict(r=4, lora_alpha=8, tables="head"),
    "saved norms": dict(r=4, lora_alpha=8, modules_to_save=["norm", "ln_f", "layer_norm"]),
    "saved tables": dict(r=4, lora_alpha=8, tables="saved"),
    "bias all": dict(r=4, lora_alpha=8, target_modules="all-linear", bias="all"),
    "bias lora_only": dict(r=4, lora_alpha=8, target_modules="all-linear", bias="lora_only"),
    "tokens": dict(r=4, lora_alpha=8, trainable_token_indices=[7, 3, 12]),
    "tokens of the head": dict(r=4, lora_alpha=8, trainable_token_indices={"lm_head": [3, 9]}),
    "experts": dict(r=4, lora_alpha=8, target_parameters=EXPERTS),
    "experts and attention": dict(r=3, lora_alpha=6, target_parameters=EXPERTS[:1], target_modules=["q_proj", "o_proj"], use_rslora=True),
    "experts patterns": dict(r=4, lora_alpha=8, target_parameters=["model.layers.0.mlp." + EXPERTS[0], EXPERTS[1]],
                             target_modules=["v_proj"], rank_pattern={EXPERTS[1]: 2}, alpha_pattern={"gate_up_proj": 24.0}),
    "patterns dora": dict(r=4, lora_alpha=8, target_modules="all-linear", patterns=True, use_rslora=True, use_dora=True),
}
LINEAR = ("Linear", "Linear4bit", "Conv1D")  # classes of modules that can have an adapter


BASES = {
    "nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32),
    "nf4-dq": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32,
                   bnb_4bit_use_double_quant=True),
}  # fmt: skip


def is_decoded(weight):
    """Whether bitsandbytes dequantizes the matrix to what its codes and scales stand for. Version 0.50.2 takes the scale of
    another block on a CPU where rows of some lengths end within a block."""
    state, packed = weight.quant_state, weight.data.reshape(-1)
    scales = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset if state.nested else state.absmax
    values = state.code[torch.stack([packed >> 4, packed & 15], dim=1).reshape(-1).long()]
    want = values * scales.repeat_interleave(state.blocksize)[: values.numel()]
    return torch.equal(functional.dequantize_4bit(weight.data, state).reshape(-1), want)


def quantize(folder, base):
    """Replaces the model in a folder by itself as bitsandbytes has quantized it, and returns whether that can be done."""
    settings = transformers.BitsAndBytesConfig(**BASES[base])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=settings, device_map="cpu")
    if not all(is_decoded(module.weight) for module in model.modules() if isinstance(module, bitsandbytes.nn.Linear4bit)):
        return False
    shutil.rmtree(folder)
    model.save_pretrained(folder)
    return True


def is_mixture(config):
    return "num_experts" in config or "num_local_experts" in config


def base_of(folder, dtype=torch.float64):
    config = json.loads((folder / "config.json").read_text())
    if config.get("quantization_config"):
        dtype = torch.float32
    more = {"experts_implementation": "eager"} if is_mixture(config) else {}  # the other ones refuse float64
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", **more).eval()
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # it would compute in bfloat16, whatever the compute dtype is
    return model


def with_targets(settings, family):
    """The settings with the modules that strata adapts where PEFT has no default."""
    if "target_modules" in settings or family in peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING:
        return settings
    return settings | {"target_modules": ["qkv_proj"] if family == "phi3" else ["q_proj", "v_proj"]}


def with_patterns(base, settings):
    """The settings with a rank for one kind of modules, and an alpha for another one and for one module."""
    names = [name for name, module in base.named_modules() if module.__class__.__name__ in LINEAR and name != "lm_head"]
    kinds = sorted({name.rsplit(".", 1)[1] for name in names})
    other = next(name for name in names if not name.endswith("." + kinds[-1]))
    return settings | {"rank_pattern": {kinds[0]: 3}, "alpha_pattern": {kinds[-1]: 24.0, other: 2.0}}


def with_names(base, settings):
    """The settings with one kind of modules but for one of them, another kind by its whole name, in layer 1, and an order of patterns."""
    names = [name for name, module in base.named_modules() if module.__class__.__name__ in LINEAR and name != "lm_head"]
    kinds = sorted({name.rsplit(".", 1)[1] for name in names})
    other = next(name for name in names if name.endswith("." + kinds[-1]))
    excluded = next(name for name in reversed(names) if name.endswith("." + kinds[0]))
    return settings | {"target_modules": [*kinds[:-1], other], "exclude_modules": [excluded], "layers_to_transform": [1],
                       "rank_pattern": {kinds[1][:2] + ".*": 3, kinds[1]: 2}}  # fmt: skip


def with_tables(base, settings):
    """The settings with the embedding or the head as a module with an adapter, or with both saved."""
    kind, table = settings.pop("tables"), next(n for n, m in base.named_modules() if m is base.get_input_embeddings())
    names = [name for name, module in base.named_modules() if module.__class__.__name__ in LINEAR and name != "lm_head"]
    first = names[0].rsplit(".", 1)[1]
    chosen = {"embedding": [table.rsplit(".", 1)[1]], "head": ["lm_head"], "saved": []}[kind]
    saved = {"modules_to_save": [table, "lm_head"]} if kind == "saved" else {}
    return settings | {"target_modules": [first, *chosen]} | saved


def make_adapter(folder, family, settings, seed, dtype=torch.float64):
    """A model of PEFT with a random adapter, whose values are float32 numbers."""
    settings, base = dict(settings), base_of(folder, dtype)
    if settings.pop("patterns", False):
        settings = with_patterns(base, settings)
    if settings.pop("names", False):
        settings = with_names(base, settings)
    if "tables" in settings:
        settings = with_tables(base, settings)
    return random_adapter(base, with_targets(settings, family), seed)


def random_adapter(base, settings, seed):
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_magnitude" in name:  # near the norms that they start as
                parameter.copy_((parameter * (1 + 0.1 * torch.randn(parameter.shape, generator=random))).float())
            elif "lora_" in name:
                deviation = 0.1 if "lora_B" in name else 0.2
                parameter.copy_(torch.randn(parameter.shape, generator=random) * deviation)
            elif parameter.requires_grad:  # a bias, or of a module that is saved
                parameter.add_((torch.randn(parameter.shape, generator=random) * 0.05).float())
    return model.eval()


def save_adapter(model, folder):
    """Writes the adapter in float32."""
    model.save_pretrained(folder)
    file = folder / "adapter_model.safetensors"
    values = {name: array.astype("float32") for name, array in tensors.read(file).items()}
    file.unlink()
    tensors.write(file, values)


def file_name(parameter):
    """The name in PEFT's file."""
    plain = parameter.replace("lora_magnitude_vector.default.weight", "lora_magnitude_vector").replace("modules_to_save.default.", "")
    return re.sub(r"(lora_embedding_[AB]|trainable_tokens_delta)\.default$", r"\1", plain).replace(".default.", ".")


def trained(model):
    """{name in PEFT's file: parameter}."""
    return {file_name(name): p for name, p in model.named_parameters() if p.requires_grad}


def by_norm(got, want):
    """The relative error of the worst tensor; a norm below 1e-3 of the total counts as that."""
    total = torch.stack([tensor.norm() for tensor in want.values()]).norm()
    errors = {name: ((got[name] - w).norm() / torch.maximum(w.norm(), 1e-3 * total)).item() for name, w in want.items()}
    worst = max(errors, key=errors.get)
    return errors[worst], worst


def adapter_tensors(folder):
    return {name: torch.from_numpy(array.copy()) for name, array in tensors.read(folder / "adapter_model.safetensors").items()}


def train(logits, parameters, batches, steps, lr):
    """Trains {name: parameter} of what logits(tokens) computes, and returns the losses; biases and norms do not decay."""
    is_plain = {name: name.endswith(".bias") or (p.dim() == 1 and "lora_" not in name) for name, p in parameters.items()}
    plain = [p for name, p in parameters.items() if is_plain[name]]
    decayed = [p for name, p in parameters.items() if not is_plain[name]]
    groups = [dict(params=decayed, weight_decay=DECAY), dict(params=plain, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=BETAS, eps=EPS)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        tokens, targets, _ = batches[step]
        loss = mean_loss(logits(tokens), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_peft(model, batches, steps, lr):
    return train(lambda tokens: model(tokens).logits, trained(model), batches, steps, lr)


def differing_bits(written, read):
    """Differing bits of what both files have, and keys that one of them lacks."""
    ours = adapter_tensors(written)
    theirs = {name: values for name, values in adapter_tensors(read).items() if not name.endswith("base_layer.weight")}  # PEFT's copy of a table
    differing = len(set(ours) ^ set(theirs))
    return differing + sum(int((ours[n].view(torch.int32) != t.float().view(torch.int32)).sum()) for n, t in theirs.items() if n in ours)


def count_files(written, read, base):
    """Differing bits and keys of the folder that strata wrote, and how PEFT loads it."""
    ours = adapter_tensors(written)
    loaded = peft.PeftModel.from_pretrained(base, written)
    again = {file_name(name): p for name, p in loaded.named_parameters() if file_name(name) in ours}
    lost = len(set(again) ^ set(ours)) + sum(not torch.equal(again[n].float(), ours[n]) for n in again if n in ours)
    return differing_bits(written, read) + lost


def compare(case, name, scratch, args):
    row = {"case": case.name, "adapter": name, "figures": {}, "problems": []}
    if name.startswith("experts") and not is_mixture(case.config):
        return row | {"limits": {}, "skipped": "it has no experts"}
    folder = scratch / case.name
    if not folder.exists():
        make_folders.make_case(case, folder, args.seed, own=False)
        if args.base and not quantize(folder / "hf", args.base):
            shutil.rmtree(folder)
            return row | {"limits": {}, "skipped": "bitsandbytes dequantizes its rows wrongly"}
    if CASES[name].get("tables") == "saved" and base_of(folder / "hf").config.tie_word_embeddings:
        return row | {"limits": {}, "skipped": "a tied table has no copy of its own"}
    try:
        model = make_adapter(folder / "hf", case.config["model_type"], CASES[name], args.seed)
    except ValueError as error:
        if "ParamWrapper does not work with" not in str(error):
            raise
        return row | {"limits": {}, "skipped": "PEFT has no such adapter of experts"}
    adapter, out = scratch / f"{case.name} {name}", scratch / f"{case.name} {name} out"
    save_adapter(model, adapter)
    args.adapter = adapter
    try:
        run_probe(folder, "whole", out, args.steps, args)
    except ValueError as error:
        if case.config.get("final_logit_softcapping") and "logits with a soft cap cannot be trained so" in str(error):
            return row | {"limits": {}, "skipped": "logits with a soft cap and an adapter of their matrix are refused"}
        if "gates cannot have adapters of DoRA" in str(error):
            return row | {"limits": {}, "skipped": "DoRA of the gate of a shared expert is refused"}
        row["problems"].append(str(error))
        return row
    figures, batches = row["figures"], Batches(folder / "whole.safetensors")
    tokens, targets, _ = batches[0]
    want = model(tokens).logits
    got = torch.from_numpy(tensors.read(out / "logits.safetensors")["logits"].copy())
    figures["logits"] = ((got - want).abs().max() / want.abs().max()).item()
    if (out / "merged").exists():  # not with an adapter of a tied table
        with torch.no_grad():
            got = base_of(out / "merged")(tokens).logits
        figures["merged"] = ((got - want).abs().max() / want.abs().max()).item()
    parameters = trained(model)
    gradients = dict(zip(parameters, torch.autograd.grad(mean_loss(want, targets), list(parameters.values())), strict=True))
    figures["gradients"], row["worst"] = by_norm(adapter_tensors(out / "grads"), gradients)
    figures["files"] = count_files(out / "same", adapter, base_of(folder / "hf"))
    losses = train_peft(model, batches, args.steps, args.lr)
    ours = json.loads((out / "losses.json").read_text())["losses"]
    figures["losses"] = max(abs(a - b) / abs(b) for a, b in zip(ours, losses, strict=True))
    exported = peft.PeftModel.from_pretrained(base_of(folder / "hf"), out / "adapter")
    with torch.no_grad():
        want, got = model(tokens).logits, exported(tokens).logits
    figures["exported"] = ((got - want).norm() / want.norm()).item()
    limits = {figure: limit for figure, limit in LIMITS.items() if figure in figures}
    if figures["exported"] > limits["exported"]:
        # In some models rounding errors grow in 50 steps: then PEFT's own in float32 are the measure.
        own = make_adapter(folder / "hf", case.config["model_type"], CASES[name], args.seed, torch.float32)
        train_peft(own, batches, args.steps, args.lr)
        with torch.no_grad():
            figures["torch_exported"] = ((own(tokens).logits - want).norm() / want.norm()).item()
        limits["exported"] = max(limits["exported"], 1.5 * figures["torch_exported"])
    row["limits"] = limits
    row["problems"] += adapter_table.above_limits(row)
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    adapter_table.add_probe(parser, steps=50)
    parser.add_argument("--adapter", nargs="+", metavar="NAME", choices=sorted(CASES), dest="adapters", help="adapters to try")
    parser.add_argument("--base", choices=sorted(BASES), help="how bitsandbytes quantizes the base (default: not)")
    args = parser.parse_args()
    if args.base and bitsandbytes is None:
        print("adapters: skipped: there is no bitsandbytes", file=sys.stderr)
        return 77
    args.probe, args.dtype, args.widened = args.probe.absolute(), "f32", False
    return adapter_table.run("adapters", args, args.adapters or CASES, compare, {"limits": LIMITS})


if __name__ == "__main__":
    sys.exit(main())
