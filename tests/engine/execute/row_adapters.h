#pragma once

#include "engine/execute/adapters.h"
#include "engine/execute/first_gradients.h"

namespace strata::test {

/// `n` adapters of a model: that of all modules with other scales, and every other one leaves out a matrix.
inline std::vector<NamedLora> named_adapters(const DecoderConfig& config, std::size_t n) {
  std::vector<NamedLora> adapters;
  for (std::size_t k = 0; k < n; ++k) {
    NamedLora adapter{str("adapter", k), adapters_of(config)};
    for (LoraGroup& group : adapter.groups) group.scale *= 1.0f + 0.25f * static_cast<float>(k);
    if (k % 2 == 1)
      std::erase_if(adapter.groups, [](const LoraGroup& g) { return g.weight.ends_with("mlp_out.weight"); });
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

/// A prefill of `prefill_rows` tokens and a decode of one token of each of `sequences`, of which each row
/// goes through one of `adapters`.
struct RowAdapterPrograms {
  DecoderConfig config;
  std::vector<NamedLora> adapters;
  DType compute = DType::f32;
  kernels::WeightFormat base = kernels::WeightFormat::full;
  std::int64_t prefill_rows = 7, sequences = 4, context = 16;

  Program record(std::int64_t rows) const {
    Program program = must(record_cached_decoder(config, {rows, sequences, context, sequences}, compute));
    program = must(add_lora_rows(std::move(program), adapters, rows));
    for (ParamInfo& param : program.params) param.trainable = false;
    if (base != kernels::WeightFormat::full)
      program = must(quantize_weights(std::move(program), base, weight_parts(config)));
    return fuse_add_norm(std::move(program));
  }
  ProgramSet set() const {
    ProgramSet programs;
    programs[ProgramRole::prefill] = record(prefill_rows);
    programs[ProgramRole::decode] = record(sequences);
    return programs;
  }
};

/// Values by the parameters' names, as random_values() gives them.
inline Status initialize_by_name(Engine& engine) {
  return engine.initialize(1, [](const StatePiece& piece, std::span<float> values) -> Result<bool> {
    STRATA_TRY(random_values(piece, values));
    return true;
  });
}

/// Continues sequences, one for each element of `chosen`, the number of its adapter: prompts of different
/// lengths in pieces, then three tokens one by one. Returns the logits of each sequence's last three tokens.
inline std::vector<std::vector<float>> logits_of_sequences(Engine& engine,
                                                           const std::vector<std::int32_t>& chosen) {
  std::vector<SequenceToken> rows;
  std::vector<std::int32_t> ends;
  const auto token = [](std::size_t s, std::int64_t i) {
    return static_cast<std::int32_t>((17 * static_cast<std::int64_t>(s) + 5 * i * i + 3) % 50);
  };
  const auto length = [](std::size_t s) { return 3 + 2 * static_cast<std::int32_t>(s); };
  for (std::size_t s = 0; s < chosen.size(); ++s)
    for (std::int32_t i = 0; i < length(s); ++i)
      rows.push_back({token(s, i), i, static_cast<std::int32_t>(s), chosen[s]});
  for (std::size_t at = 0; at < rows.size(); at += 7)
    must(engine.extend(std::span(rows).subspan(at, std::min<std::size_t>(7, rows.size() - at)), {}));
  std::vector<std::vector<float>> logits(chosen.size());
  for (std::int32_t step = 0; step < 3; ++step) {
    std::vector<SequenceToken> next;
    std::vector<std::int32_t> wanted;
    for (std::size_t s = 0; s < chosen.size(); ++s) {
      const std::int32_t position = length(s) + step;
      next.push_back({token(s, position), position, static_cast<std::int32_t>(s), chosen[s]});
      wanted.push_back(static_cast<std::int32_t>(s));
    }
    const auto got = must(engine.extend(next, wanted));
    const std::size_t vocab = got.size() / chosen.size();
    for (std::size_t s = 0; s < chosen.size(); ++s)
      logits[s].insert(logits[s].end(), got.begin() + static_cast<std::ptrdiff_t>(s * vocab),
                       got.begin() + static_cast<std::ptrdiff_t>((s + 1) * vocab));
  }
  return logits;
}

}  // namespace strata::test
