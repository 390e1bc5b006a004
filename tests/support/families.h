#pragma once

#include <array>
#include <string_view>

namespace strata::test {

/// One family for each way in which decoders differ: tied tables, biases and learned positions; ALiBi; RoPE
/// with grouped queries and a gated MLP; normalized queries and heads wider than hidden / heads; windows,
/// soft caps and norms on both sides. Tests of what is added to a decoder run for these; those of a family's
/// own code run for decoder_families().
inline constexpr std::array<std::string_view, 5> kFamilyKinds = {"gpt2", "bloom", "llama", "qwen3", "gemma2"};

}  // namespace strata::test
