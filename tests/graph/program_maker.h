#pragma once

#include <algorithm>
#include <map>

#include <strata/graph/builder.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "support/experts/tiny_experts.h"

namespace strata::test {

inline Program decoder_program(const DecoderConfig& config, std::int64_t batch,
                               Recompute recompute = Recompute::none, DType compute = DType::f32) {
  const Program forward = must(record_decoder(config, batch, DecoderHead::loss, DecoderRows::whole, compute));
  return recompute_regions(must(derive_backward(forward, "loss")), recompute);
}
inline DecoderConfig make_decoder_config(std::int64_t layers, std::int64_t hidden) {
  return {.family = "gpt2",
          .layers = layers,
          .hidden = hidden,
          .heads = 2,
          .ffn = 4 * hidden,
          .vocab = 61,
          .seq = 16};
}

/// A decoder of `family` with the proportions of real models.
inline DecoderConfig make_realistic_config(std::string_view family) {
  DecoderConfig config = decoder_for_family(family).value();
  const bool grouped = config.norm == DecoderConfig::Norm::rms;
  config.layers = config.one_part ? 24 : 12;  // a half of these mixes, the other has an MLP
  config.hidden = 768;
  config.heads = 12;
  config.kv_heads = family_limits(family).grouped_queries ? 4 : 12;
  config.ffn = grouped ? 2048 : 3072;
  config.vocab = 50257;
  config.seq = 1024;
  set_tiny_experts(config);
  return config;
}

/// Number of instructions of each op.
inline std::map<Op, int> count(const Program& program) {
  std::map<Op, int> of;
  for (const Instr& instr : program.code) ++of[instr.op];
  return of;
}

/// A random model over 8 rows: it reads values of earlier instructions, ties and freezes weights and marks
/// regions, all at random. `divisor`: the loss is divided by an input of that name.
inline Program random_program(std::uint64_t seed, bool divisor = false) {
  const Rng rng(seed, 13);
  std::uint64_t at = 0;
  const auto below = [&](std::uint64_t n) { return rng.below(at++, n); };
  Builder b;
  const Value tokens = b.input("tokens", {8}, DType::i32), targets = b.input("targets", {8}, DType::i32);
  const Value wte = b.param("wte", {11, 12}, {}), wpe = b.param("wpe", {4, 12}, {});
  std::vector<Value> rows = {
      b.add(b.embedding(tokens, wte), b.embedding(b.positions(8, 4), wpe))};  // all [8, 12]
  std::vector<Value> square = {b.param("first", {12, 12}, {})};
  std::vector<std::size_t> unread;  // indices into rows
  const std::uint64_t length = 2 + below(25);
  for (std::uint64_t i = 0; i < length; ++i) {
    if (below(4) == 0) b.region(str("r", i), below(2) == 0);
    const auto read = [&](std::size_t row) {
      unread.erase(std::remove(unread.begin(), unread.end(), row), unread.end());
      return rows[row];
    };
    const Value x = read(rows.size() - 1 - below(std::min<std::uint64_t>(rows.size(), 5)));
    unread.push_back(rows.size());
    const auto param = [&](const char* kind, Shape shape) {
      return b.param(str(kind, i), shape, {.trainable = below(5) != 0});
    };
    switch (below(6)) {
      case 0:
        rows.push_back(b.gelu(x));
        break;
      case 1:
        rows.push_back(b.add(x, read(below(rows.size()))));
        break;
      case 2:
        rows.push_back(b.layernorm(x, param("scale", {12}), param("shift", {12}), 1e-5f));
        break;
      case 3:
        rows.push_back(b.linear(x, square[below(square.size())]));
        break;
      case 4:
        square.push_back(param("w", {12, 12}));
        rows.push_back(b.linear(x, square.back(), param("b", {12})));
        break;
      case 5:
        rows.push_back(b.attention(b.linear(x, param("qkv", {36, 12})), {2, 2}, 4));
        break;
    }
  }
  Value sum = b.linear(rows.back(), square[0]);
  for (const std::size_t row : unread) sum = b.add(sum, rows[row]);
  for (const Value& weight : square)
    sum = b.add(sum, b.linear(rows.back(), weight));  // so that the loss depends on every weight
  const Value by = divisor ? b.input("divisor", {1}, DType::f32) : Value{};
  return must(b.finish({{"loss", b.cross_entropy(b.linear(sum, wte), targets, by)}}));
}

}  // namespace strata::test
