#!/usr/bin/env python3
"""Writes tests/model/gguf/ggml_blocks.h: what ggml's reference quantizers make of the values of block_values(), and what the
package gguf makes of these bytes. Needs numpy, gguf and a libggml-base.so, which building llama.cpp makes.
usage: make_gguf_fixtures.py LIBGGML_BASE VERSION"""
import ctypes
import pathlib
import sys

import gguf
import numpy

N = 4096
FORMATS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q5_K", "q6_K", "mxfp4")


def block_values():
    """The same as block_values() of the test: multiples of powers of two, of many magnitudes; then zeros, equal values, and
    single ones among zeros."""
    i = numpy.arange(N, dtype=numpy.uint64)
    draw = (i * 2654435761 % 2**32) >> 16
    values = (draw % 2001).astype(numpy.float64) - 1000
    values *= 2.0 ** -(10.0 + (i // 128 % 23))
    values[3072:3328] = 0
    values[3328:3584] = -0.25
    values[3584:] *= i[3584:] % 32 == 5
    return values.astype(numpy.float32)


def fnv(data):
    """FNV-1a of 64 bits."""
    digest = 0xCBF29CE484222325
    for byte in data.tobytes():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return digest


def main():
    ggml, values = ctypes.CDLL(sys.argv[1]), block_values()
    rows = ""
    for name in FORMATS:
        kind = gguf.GGMLQuantizationType[name.upper()]
        elems, size = gguf.GGML_QUANT_SIZES[kind]
        data = numpy.zeros(N // elems * size, numpy.uint8)
        quantize = getattr(ggml, f"quantize_row_{name}_ref")
        quantize.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        quantize(values.ctypes.data, data.ctypes.data, N)
        decoded = gguf.quants.dequantize(data, kind).astype(numpy.float32)
        rows += f"    {{GgufFormat::{name.lower()}, 0x{fnv(data):016x}u, 0x{fnv(decoded):016x}u}},\n"
    text = f"""// Written by scripts/make_gguf_fixtures.py with ggml {sys.argv[2]} and gguf 0.19.0.
#pragma once

#include <cstdint>

#include <strata/runtime/io/gguf/format.h>

namespace strata::test {{

/// FNV-1a of ggml's bytes for block_values(), and of the f32 values that the package gguf makes of them.
struct GgmlBlocks {{
  GgufFormat format;
  std::uint64_t bytes, values;
}};
inline constexpr GgmlBlocks kGgmlBlocks[] = {{
{rows}}};

}}  // namespace strata::test
"""
    pathlib.Path(__file__).parents[1].joinpath("tests/model/gguf/ggml_blocks.h").write_text(text)


main()
