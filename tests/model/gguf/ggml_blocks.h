// Written by scripts/make_gguf_fixtures.py with ggml 0.25.3 and gguf 0.19.0.
#pragma once

#include <cstdint>

#include <strata/runtime/io/gguf/format.h>

namespace strata::test {

/// FNV-1a of ggml's bytes for block_values(), and of the f32 values that the package gguf makes of them.
struct GgmlBlocks {
  GgufFormat format;
  std::uint64_t bytes, values;
};
inline constexpr GgmlBlocks kGgmlBlocks[] = {
    {GgufFormat::q4_0, 0xb080c901bbf42455u, 0xf813ca7399bc353bu},
    {GgufFormat::q4_1, 0x6af8a906b0619917u, 0x15ff2c12b15ba5d4u},
    {GgufFormat::q5_0, 0xa8733027cf0296ecu, 0x4ac881360bda4490u},
    {GgufFormat::q5_1, 0xfb9fabc4098c921au, 0xa32cc550b717cec3u},
    {GgufFormat::q8_0, 0xfc8e6a3ba4bb779cu, 0x8593bb3d164885e6u},
    {GgufFormat::q4_k, 0xde72aec6c3981428u, 0xece5706db8e4fabdu},
    {GgufFormat::q5_k, 0x8d73f931bb3fd8a5u, 0x5f609dc6ffd52633u},
    {GgufFormat::q6_k, 0x44dd22b1cb8953ffu, 0x0d94834a456005adu},
    {GgufFormat::mxfp4, 0x715e4f8087a484fcu, 0x3669b9ca8caca998u},
};

}  // namespace strata::test
