"""safetensors files and Hugging Face weight folders, with numpy only.

An independent implementation: files of strata are read by code that shares nothing with strata, and the
oracle needs no package for files. bfloat16, which numpy lacks, is read as float32."""
import json
import pathlib
import struct

import numpy as np

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "U8": "u1", "BOOL": "?"}


def write(path, tensors, dtype=None, metadata=None):
    """Writes {name: array}; floats are stored as `dtype` (F32, F16, BF16 ...) if that is given."""
    header, pieces, end = {}, [], 0
    if metadata:
        header["__metadata__"] = metadata
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        kind = dtype if dtype and array.dtype.kind == "f" else _kind(name, array)
        data = bf16_bits(array).tobytes() if kind == "BF16" else array.astype(TYPES[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + len(data)]}
        pieces.append(data)
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))


def read(path, with_types=False):
    """Reads {name: array}; with_types: {name: (array, type)}. Raises ValueError for a malformed file."""
    data = pathlib.Path(path).read_bytes()
    if len(data) < 8:
        raise ValueError(f"{path}: {len(data)} bytes are no safetensors file")
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        raise ValueError(f"{path}: a header of {length} bytes in a file of {len(data)}")
    header, body = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]
    header.pop("__metadata__", None)
    tensors, spans = {}, []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind, shape = entry["dtype"], entry["shape"]
        if kind != "BF16" and kind not in TYPES:
            raise ValueError(f"{path}: {name} has the type {kind}")
        raw = np.frombuffer(body[begin:end], dtype="<u2" if kind == "BF16" else TYPES[kind])
        array = (_from_bits(raw) if kind == "BF16" else raw).reshape(shape)
        tensors[name] = (array, kind) if with_types else array
        spans.append((begin, end, name))
    at = 0
    for begin, end, name in sorted(spans):
        if begin != at:
            raise ValueError(f"{path}: {name} begins at {begin}, not at {at}: the format allows no hole and no overlap")
        at = end
    if at != len(body):
        raise ValueError(f"{path}: {len(body) - at} bytes after the last tensor")
    return tensors


def write_folder(folder, config, tensors, dtype=None, shards=1):
    """Writes config.json and one file, or `shards` files and their index."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    about = {"format": "pt"}
    if shards == 1:
        write(folder / SINGLE, tensors, dtype, about)
        return
    names, where = list(tensors), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        mine = names[shard::shards]
        write(folder / file, {name: tensors[name] for name in mine}, dtype, about)
        where.update((name, file) for name in mine)
    size = sum(array.size * (2 if dtype in ("BF16", "F16") else 4) for array in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(where.items()))}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def read_folder(folder, with_types=False):
    """Returns (config, tensors) of a folder with one file or an index."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    if not (folder / INDEX).exists():
        return config, read(folder / SINGLE, with_types)
    where = json.loads((folder / INDEX).read_text())["weight_map"]
    tensors = {}
    for file in sorted(set(where.values())):
        found = read(folder / file, with_types)
        listed = {name for name, its_file in where.items() if its_file == file}
        if listed != set(found):
            raise ValueError(f"{folder / file} and the index differ in {sorted(listed ^ set(found))[:5]}")
        tensors.update(found)
    return config, tensors


def bf16_bits(array):
    """The upper halves of float32 values, rounded to nearest even. Values must be finite."""
    bits = np.ascontiguousarray(array, dtype="<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def as_bf16(array):
    """The values rounded to bfloat16, as a float32 array."""
    return _from_bits(bf16_bits(array)).reshape(np.shape(array))


def _from_bits(bits):
    return (bits.astype("<u4") << 16).view("<f4")


def _kind(name, array):
    for kind, code in TYPES.items():
        if array.dtype == np.dtype(code):
            return kind
    raise ValueError(f"{name}: no safetensors type for {array.dtype}")
