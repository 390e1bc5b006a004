#pragma once

#include <string_view>

#include <strata/model/decoder.h>

#include "support/experts/tiny_experts.h"

namespace strata::test {

/// A decoder of `family` of two layers, whose tensors are small.
inline DecoderConfig small_decoder(std::string_view family) {
  DecoderConfig config = decoder_for_family(family).value();
  config.layers = 2;
  config.hidden = 16;
  config.heads = 4;
  config.kv_heads = family_limits(family).grouped_queries ? 2 : 4;
  config.ffn = 24;
  config.vocab = 30;
  config.seq = 8;
  if (config.attention_every > 1) config.attention_every = 2;  // one layer of each kind
  if (config.one_part) config.layers = 4;
  set_tiny_experts(config);
  return config;
}

}  // namespace strata::test
