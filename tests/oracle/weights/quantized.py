#!/usr/bin/env python3
"""Runs strata's quantize_probe and bitsandbytes on the same matrices, and compares.

    quantized.py --probe PATH [--values N] [--seed N] [--json]

Of N normal values, some of them with outliers, all codes and scales of NF4 must be those of bitsandbytes, and all values
that they stand for. With double quantization the codes of the scales may differ, because the kernels of bitsandbytes on
CPUs round them by a table of 65,536 entries; none may be farther from its scale than theirs. What strata dequantizes from the
codes that it wrote must have the bits of what bitsandbytes dequantizes from the same ones. Exit code: 0 if so, 1 if not,
77 without PyTorch and bitsandbytes."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import bitsandbytes
    import bitsandbytes.functional as functional
    import numpy as np
    import torch
except ImportError as error:
    print(f"quantized: skipped: {error}", file=sys.stderr)
    sys.exit(77)

COLUMNS = 4096


def matrix(rows, seed):
    random = np.random.default_rng(seed)
    values = random.standard_normal((rows, COLUMNS), dtype=np.float32) * np.float32(0.02)
    values[::7, ::111] *= 30  # outliers
    values[1, :64] = 0  # a block of zeros
    values[2, :64] = 1e-40  # one of subnormal values
    return values


def run_probe(probe, form, values, folder):
    file = folder / "values.f32"
    values.tofile(file)
    out = folder / form
    out.mkdir(exist_ok=True)
    subprocess.run([probe, form, str(values.shape[0]), str(values.shape[1]), file, out], check=True)
    file.unlink()
    return {path.name: np.fromfile(path, np.uint8) for path in out.iterdir()}


def differing_bits(a, b):
    return int((a.view(np.uint32) != b.view(np.uint32)).sum())


def compare_scales(values, ours, state):
    """How many codes of scales are other ones, and how many of these are farther from the scale than bitsandbytes'."""
    _, plain = functional.quantize_4bit(torch.from_numpy(values), blocksize=64, quant_type="nf4")
    blocks = plain.absmax.numpy().astype(np.float64)
    groups = np.repeat(ours["group_scales"].view(np.float32).astype(np.float64), 256)[: blocks.size]
    share = (blocks - float(ours["mean"].view(np.float32)[0])) / groups
    code, theirs = state.state2.code.numpy().astype(np.float64), state.absmax.numpy()
    worse = np.abs(code[ours["scales"]] - share) > np.abs(code[theirs] - share) + 1e-6
    return {"other_scales": float((ours["scales"] != theirs).mean()), "worse_scales": int(worse.sum())}


def compare(form, values, probe, folder):
    nested = form == "nf4-dq"
    ours = run_probe(probe, form, values, folder)
    theirs, state = functional.quantize_4bit(torch.from_numpy(values), blocksize=64, compress_statistics=nested, quant_type="nf4")
    row = {"format": form, "values": values.size, "codes": int((ours["values"] != theirs.numpy().reshape(-1)).sum())}
    if not nested:
        row["scales"] = differing_bits(ours["scales"].view(np.float32), state.absmax.numpy())
    else:
        row |= compare_scales(values, ours, state)
        row["mean"] = abs(float(ours["mean"].view(np.float32)[0]) / float(state.offset) - 1)
        state.absmax = torch.from_numpy(ours["scales"])
        state.offset = torch.from_numpy(ours["mean"].view(np.float32).copy())[0]
        state.state2.absmax = torch.from_numpy(ours["group_scales"].view(np.float32).copy())
    packed = torch.from_numpy(ours["values"]).reshape(-1, 1)
    decoded = functional.dequantize_4bit(packed, state).numpy().reshape(-1)
    row["decoded"] = differing_bits(ours["dequantized"].view(np.float32), decoded)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=pathlib.Path, required=True, metavar="PATH", help="the program quantize_probe")
    parser.add_argument("--values", type=float, default=1e6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows, at_once, done = [], 8192, 0
    total = max(8, int(args.values) // COLUMNS + (int(args.values) % COLUMNS > 0))
    with tempfile.TemporaryDirectory(prefix="strata-quantized-") as scratch:
        while done < total:
            n = min(at_once, total - done)
            values = matrix(max(n, 8), args.seed + done)
            rows += [compare(form, values, args.probe.absolute(), pathlib.Path(scratch)) for form in ("nf4", "nf4-dq")]
            done += n
    worst = {}
    for name in ("codes", "scales", "decoded", "worse_scales"):
        worst[name] = sum(row.get(name, 0) for row in rows)
    for name in ("other_scales", "mean"):
        worst[name] = max((row.get(name, 0) for row in rows), default=0)
    ok = worst["codes"] == worst["scales"] == worst["decoded"] == worst["worse_scales"] == 0 and worst["mean"] <= 1e-6
    result = {"values": sum(row["values"] for row in rows if row["format"] == "nf4"), "worst": worst, "ok": ok,
              "bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__}  # fmt: skip
    print(json.dumps(result) if args.json else result)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
