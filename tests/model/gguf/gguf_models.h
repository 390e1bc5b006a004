// Small models of all families whose parameters have values that depend on their names.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <strata/model/decoder.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/status.h>

#include "family/family.h"
#include "support/experts/tiny_experts.h"

namespace strata::test {

inline constexpr std::int64_t kHidden = 64, kHeads = 4, kHeadDim = 16;

/// Gives a family of mixtures experts as llama.cpp computes them, in whole blocks of 32 values.
inline void set_experts_of_llama_cpp(DecoderConfig& c) {
  const detail::GgufArchitecture& architecture = detail::family_of(c).gguf;
  if (!architecture.experts.any) return;
  c.experts.layers.clear();
  if (family_limits(c.family).expert_ffn) c.experts.ffn = 32;
  if (c.experts.shared_plain) c.experts.shared_ffn = 64;
  if (!architecture.experts.rule_keys) c.experts.rule.renormalize = architecture.experts.renormalizes;
  if (architecture.equal_heads) c.kv_heads = c.heads;
}

inline DecoderConfig model_of(std::string_view family) {
  DecoderConfig c = decoder_for_family(family).value();
  c.layers = 2;
  c.hidden = kHidden;
  c.heads = kHeads;
  const FamilyLimits limits = family_limits(family);
  c.kv_heads = limits.grouped_queries ? 2 : 4;
  c.ffn = limits.ffn_factor > 0 ? limits.ffn_factor * kHidden : 96;
  c.vocab = 270;
  c.positions = 64;
  set_tiny_experts(c);
  set_experts_of_llama_cpp(c);
  return c;
}

inline std::vector<std::string_view> families_in_llama_cpp() {
  std::vector<std::string_view> names;
  for (const detail::Family& family : detail::families())
    if (!family.gguf.name.empty()) names.push_back(family.name);
  return names;
}

inline float value_at(std::string_view param, std::size_t i) {
  return Rng(std::hash<std::string_view>{}(param), 1).normal(i);
}
inline Status values_of(std::string_view param, std::span<float> into) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = value_at(param, i);
  return {};
}

inline DecoderConfig wide_llama() {
  DecoderConfig config = model_of("llama");
  config.hidden = 256;
  config.head_dim = 64;
  config.ffn = 2048;
  config.tied_head = false;
  return config;
}

}  // namespace strata::test
