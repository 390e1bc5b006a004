#!/usr/bin/env python3
"""Runs strata's quantize_probe, and compares what it dequantizes with transformers and compressed-tensors.

    weight_formats.py --probe PATH [--seed N]

The sections of a matrix in MXFP4 are read by transformers' conversion of gpt-oss's tensors, those of one in tiles of FP8 by
its Fp8Dequantize, and those of INT4 are packed again by compressed-tensors, if it is installed: no value and no byte may
differ. Exit code: 0 if none does, 1 otherwise, 77 without PyTorch and transformers."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
except ImportError as error:
    print(f"weight_formats: skipped: {error}", file=sys.stderr)
    sys.exit(77)
try:
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
except ImportError:
    pack_to_int32 = None

ROWS, COLUMNS = 384, 1024


def sections(probe, form, values, folder):
    (folder / "values.f32").write_bytes(values.tobytes())
    out = folder / form
    out.mkdir()
    subprocess.run([probe, form, str(ROWS), str(COLUMNS), folder / "values.f32", out], check=True)
    return {path.name: np.fromfile(path, np.uint8) for path in out.iterdir()}


def mxfp4(parts):
    blocks = torch.from_numpy(parts["values"]).reshape(1, ROWS, COLUMNS // 32, 16)
    scales = torch.from_numpy(parts["scales"]).reshape(1, ROWS, COLUMNS // 32)
    return convert_moe_packed_tensors(blocks, scales)[0].float().T  # bf16 holds every value


def fp8(parts):
    values = torch.from_numpy(parts["values"]).view(torch.float8_e4m3fn).reshape(ROWS, COLUMNS)
    scales = torch.from_numpy(parts["scales"]).view(torch.float32).reshape(ROWS // 128, COLUMNS // 128)
    return Fp8Dequantize(None)._dequantize_one(values, scales, torch.float32)


def int4(parts):
    packed = parts["values"].reshape(ROWS, COLUMNS // 2)
    codes = torch.from_numpy(np.stack([packed & 15, packed >> 4], -1).reshape(ROWS, COLUMNS).astype(np.int8) - 8)
    if pack_to_int32 is not None:
        theirs = pack_to_int32(codes, 4).numpy().view(np.uint8).reshape(-1)
        assert (theirs == parts["values"]).all(), "compressed-tensors packs other bytes"
    scales = torch.from_numpy(parts["scales"]).view(torch.bfloat16).float().reshape(ROWS, COLUMNS // 32)
    return codes.float() * scales.repeat_interleave(32, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", type=pathlib.Path, required=True, metavar="PATH", help="the program quantize_probe")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    values = np.random.default_rng(args.seed).standard_normal((ROWS, COLUMNS), dtype=np.float32) * np.float32(0.02)
    values[::7, ::111] *= 30  # outliers
    values[1, :64] = 0
    values[2, 64:128] = 1e-40  # subnormal
    differing = 0
    with tempfile.TemporaryDirectory(prefix="strata-formats-") as scratch:
        for form, theirs in {"mxfp4": mxfp4, "fp8": fp8, "int4": int4}.items():
            parts = sections(args.probe.absolute(), form, values, pathlib.Path(scratch))
            ours = parts["dequantized"].view(np.float32).reshape(ROWS, COLUMNS)
            n = int((ours != theirs(parts).numpy()).sum())
            error = float(np.abs(ours - values).max() / np.abs(values).max())
            print(f"{form}: {n} of {values.size} values differ; largest error {error:.4f} of the largest value"
                  + ("; packed as by compressed-tensors" if form == "int4" and pack_to_int32 is not None else ""))  # fmt: skip
            differing += n
    return 0 if differing == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
