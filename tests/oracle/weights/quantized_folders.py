#!/usr/bin/env python3
"""Runs strata's oracle_probe on whole folders of quantized mixtures of experts, and transformers and PEFT on the same.

    quantized_folders.py --probe PATH [--family NAME ...] [--steps N] [--json]

The folders are in MXFP4, as gpt-oss's releases are, in tiles of FP8, as those of DeepSeek-V3 are, and have experts in INT4, as
compressed-tensors packs them for Kimi K2; numpy writes them here. strata keeps their bytes, and computes in float32.
transformers loads them with `dequantize=True` (of INT4: a folder of what the codes and scales stand for), and it and PEFT
compute in float64. Compared are logits, and what a backward pass through the quantized matrices gives:
gradients of adapters in front of them and of experts, and the losses of training them. Exit code: 0 if all figures are within
LIMITS, 1 if one is not, 77 without PyTorch, transformers and PEFT."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import adapter_table  # ends the program where PEFT is missing
import adapters
import make_folders
import numpy as np
import safetensors.torch
import tensors
import torch
import transformers
from compare import run_probe
from layers import mean_loss
from reference import Batches

try:
    from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
except ImportError:
    PackedQuantizationCompressor = None

LIMITS = {"kept": 0, "logits": 4e-5, "gradients": 1e-4, "losses": 1e-3}
ADAPTERS = {
    "attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "o_proj"]),
    "experts": adapters.CASES["experts"],
    "experts and attention": adapters.CASES["experts and attention"],
}
EXPERTS = dict(hidden_size=128, head_dim=32, intermediate_size=192)
CASES = [
    ("mxfp4", make_folders.Case("gpt_oss", make_folders.experts("gpt_oss", "GptOss", num_local_experts=6, sliding_window=make_folders.WINDOW,
                                                                attention_bias=True, rope_scaling=make_folders.YARN | {"truncate": False}, **EXPERTS))),
    ("fp8", make_folders.Case("qwen3_moe", make_folders.experts("qwen3_moe", "Qwen3Moe", num_experts=8, moe_intermediate_size=256,
                                                                norm_topk_prob=True, **EXPERTS | {"hidden_size": 256}))),
    ("fp8", make_folders.Case("qwen2_moe", make_folders.experts("qwen2_moe", "Qwen2Moe", num_experts=4, moe_intermediate_size=128,
                                                                shared_expert_intermediate_size=384, use_sliding_window=False, **EXPERTS))),
    ("int4", make_folders.Case("olmoe", make_folders.experts("olmoe", "Olmoe", num_experts=8, num_experts_per_tok=3, **EXPERTS))),
]  # fmt: skip

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def mxfp4(values):
    """(blocks [..., columns / 32, 16], scales [..., columns / 32]) of values [..., columns]: 4-bit codes, the first of two in
    the lower half of a byte, and the exponents of powers of two, by the rule of the OCP's specification."""
    blocks = values.reshape(*values.shape[:-1], -1, 32)
    largest = np.abs(blocks).max(-1)
    exponents = np.floor(np.log2(np.where(largest > 0, largest, 1))).astype(np.int64) - 2
    scaled = blocks / np.exp2(exponents)[..., None]
    codes = np.abs(np.abs(scaled)[..., None] - E2M1).argmin(-1).astype(np.uint8) | (scaled < 0).astype(np.uint8) << 3
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).astype(np.uint8)


def fp8(values):
    """(codes [rows, columns] of E4M3, scales of tiles [128, 128])."""
    rows, columns = values.shape
    grid = [range(0, extent, 128) for extent in (rows, columns)]
    scales = np.array([[np.abs(values[r : r + 128, c : c + 128]).max() / 448 for c in grid[1]] for r in grid[0]], np.float32)
    spread = scales.repeat(128, 0)[:rows].repeat(128, 1)[:, :columns]
    return torch.from_numpy(values / spread).to(torch.float8_e4m3fn), scales


def int4(values):
    """(codes [rows, columns / 8], each eight values plus 8 from the lowest bits on, bf16 scales [rows, columns / 32], what they
    stand for)."""
    groups = values.reshape(len(values), -1, 32)
    scales = torch.from_numpy(np.abs(groups).max(-1) / 7).to(torch.bfloat16)
    spread = scales.float().numpy()[..., None]
    codes = np.clip(np.round(groups / np.where(spread > 0, spread, 1)), -8, 7).astype(np.int64)
    packed = ((codes + 8).reshape(len(values), -1, 8) << 4 * np.arange(8)).sum(-1).astype(np.uint32).view(np.int32)
    if PackedQuantizationCompressor is not None:
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**INT4))
        of_weight = {"weight": torch.from_numpy(values.copy()), "weight_scale": scales.float(), "weight_zero_point": torch.zeros_like(scales, dtype=torch.int8)}
        theirs = PackedQuantizationCompressor.compress(of_weight, scheme)["weight_packed"].numpy()
        assert (theirs == packed).all(), "compressed-tensors packs other bytes"
    return packed, scales, (codes.astype(np.float32) * spread).reshape(values.shape)


INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False, "actorder": None}
CONFIGS = {
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "int4": {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
             "ignore": ["lm_head", "re:.*self_attn.*"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4}}},
}  # fmt: skip


def quantize(folder, base):
    """Replaces the model in a folder by itself in that format. Of INT4, folder.parent / "plain" is what it stands for."""
    config, found = tensors.read_folder(folder)
    named = {}
    for name, array in found.items():
        if base == "mxfp4" and name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            # Rows are those of the outputs, which are the columns of the tensor in full precision.
            named[name + "_blocks"], named[name + "_scales"] = mxfp4(np.swapaxes(array, 1, 2))
        elif base == "fp8" and name.endswith("_proj.weight"):
            named[name], named[name + "_scale_inv"] = fp8(array)
        elif base == "int4" and ".experts." in name:
            named[name + "_packed"], named[name + "_scale"], found[name] = int4(array)
            named[name + "_shape"] = np.array(array.shape)
        else:
            named[name] = array
    if base == "int4":
        tensors.write_folder(folder.parent / "plain", config, found)
    config["quantization_config"] = CONFIGS[base]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    as_torch = {name: of if isinstance(of, torch.Tensor) else torch.from_numpy(of.copy()) for name, of in named.items()}
    safetensors.torch.save_file(as_torch, folder / tensors.SINGLE, {"format": "pt"})


def dequantized(folder):
    """transformers' model of the folder, in float64."""
    if (folder.parent / "plain").exists():
        return adapters.base_of(folder.parent / "plain")
    method = json.loads((folder / "config.json").read_text())["quantization_config"]["quant_method"]
    settings = {"mxfp4": transformers.Mxfp4Config, "fp8": transformers.FineGrainedFP8Config}[method](dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, quantization_config=settings, attn_implementation="eager", experts_implementation="eager")
    return model.eval()


def compare(base, case, name, scratch, args):
    row = {"case": f"{case.name} {base}", "adapter": name, "figures": {}, "problems": [], "limits": LIMITS}
    folder = scratch / case.name
    if not folder.exists():
        make_folders.make_case(case, folder, args.seed, own=True)
        quantize(folder / "hf", base)
    args.adapter, out = scratch / f"{case.name} {name}", scratch / f"{case.name} {name} out"
    model = adapters.random_adapter(dequantized(folder / "hf"), ADAPTERS[name], args.seed)
    adapters.save_adapter(model, args.adapter)
    try:
        printed = run_probe(folder, "whole", out, args.steps, args).splitlines()
    except ValueError as error:
        row["problems"].append(str(error))
        return row
    figures, batches = row["figures"], Batches(folder / "whole.safetensors")
    figures["kept"] = int(f"the base stays in {base}" not in printed)
    tokens, targets, _ = batches[0]
    want = model(tokens).logits
    got = torch.from_numpy(tensors.read(out / "logits.safetensors")["logits"].copy())
    figures["logits"] = ((got - want).abs().max() / want.abs().max()).item()
    parameters = adapters.trained(model)
    gradients = dict(zip(parameters, torch.autograd.grad(mean_loss(want, targets), list(parameters.values())), strict=True))
    figures["gradients"], row["worst"] = adapters.by_norm(adapters.adapter_tensors(out / "grads"), gradients)
    losses = adapters.train_peft(model, batches, args.steps, args.lr)
    ours = json.loads((out / "losses.json").read_text())["losses"]
    figures["losses"] = max(abs(a - b) / abs(b) for a, b in zip(ours, losses, strict=True))
    row["problems"] += adapter_table.above_limits(row)
    return row


def main():
    parser = adapter_table.parser_of(__doc__)
    adapter_table.add_probe(parser, steps=20)
    args = parser.parse_args()
    args.probe, args.dtype, args.widened = args.probe.absolute(), "f32", False
    bases = {case.name: base for base, case in CASES}
    cases = [case for _, case in CASES if not args.family or case.name in args.family]
    return adapter_table.run("quantized_folders", args, ADAPTERS, lambda case, *more: compare(bases[case.name], case, *more),
                             {"limits": LIMITS}, cases)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
