#!/usr/bin/env python3
"""What llama.cpp and its package `gguf` make of models that strata has written, through llama-cpp-python.

    quantizer.py     reads lines of JSON: {"f32": GGUF file, "gguf": the file in another mix, "mix": its name, "folder":
                          Hugging Face folder in f32 that strata made of that file, "lines": [[ids], ...]}

Quantizes the f32 file by llama_model_quantize without an importance matrix and prints one line of JSON for each: tensors of
other formats or bytes (`other_formats`, `other_bytes`), elements of the folder that are not what the package makes of the file
(`other_values`), and the sum of log-probabilities of all lines but their first tokens by llama.cpp with its own file
(`logprob`). Exit code 77 without the packages."""
import ctypes
import json
import math
import pathlib
import sys
import tempfile

try:
    import gguf
    import llama_cpp
    import numpy as np
except ImportError:
    sys.exit(77)
import folder_tensors

FILE_TYPES = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18, "f16": 1, "f32": 0, "mxfp4_moe": 38}


def quantized(f32, mix, out):
    """llama.cpp's own file."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = FILE_TYPES[mix], 2
    if llama_cpp.llama_model_quantize(str(f32).encode(), str(out).encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"llama.cpp did not quantize {f32}")
    return gguf.GGUFReader(out)


def compare_files(ours, theirs, row):
    own = {tensor.name: tensor for tensor in ours.tensors}
    assert set(own) == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        mine = own[tensor.name]
        if mine.tensor_type != tensor.tensor_type:
            row["other_formats"].append(f"{tensor.name} is {mine.tensor_type.name}, there {tensor.tensor_type.name}")
            continue
        a, b = np.asarray(mine.data).view(np.uint8).reshape(-1), np.asarray(tensor.data).view(np.uint8).reshape(-1)
        row["other_bytes"] += int((a != b).sum())
        row["bytes"] += a.size
        row["formats"] |= {mine.tensor_type.name}


def compare_values(ours, folder, row):
    """`folder` has the values of each tensor of the file, in f32; Gemma's norms have lost at most a bit."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    name = ours.get_field("general.architecture").contents()
    want = folder_tensors.wanted_tensors(folder, config, name)
    for tensor in ours.tensors:
        if tensor.name == "rope_freqs.weight" or tensor.name not in want:
            continue
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        row["other_values"] += int((values.reshape(-1).view(np.uint32) != np.ascontiguousarray(want[tensor.name]).reshape(-1).view(np.uint32)).sum())
        row["values"] += values.size


def log_probability(path, lines):
    n = max(map(len, lines))
    model = llama_cpp.Llama(str(path), n_ctx=n, n_batch=n, logits_all=True, verbose=False, n_threads=2)
    total = 0.0
    for ids in lines:
        model.reset()
        model.eval(ids)
        logits = np.asarray(model.scores[: len(ids) - 1], np.float64)
        peak = logits.max(axis=1, keepdims=True)
        norm = peak[:, 0] + np.log(np.exp(logits - peak).sum(axis=1))
        total += float((logits[np.arange(len(ids) - 1), ids[1:]] - norm).sum())
    return total


def compare(job):
    row = {"other_formats": [], "other_bytes": 0, "bytes": 0, "other_values": 0, "values": 0, "formats": set(), "logprob": math.nan}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "theirs.gguf"
        ours = gguf.GGUFReader(job["gguf"])
        compare_files(ours, quantized(job["f32"], job["mix"], out), row)
        compare_values(ours, job["folder"], row)
        row["logprob"] = log_probability(out, job["lines"])
    return row | {"formats": sorted(row["formats"])}


for line in sys.stdin:
    print(json.dumps(compare(json.loads(line))), flush=True)
