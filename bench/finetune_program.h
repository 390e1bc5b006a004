#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/model/adapter/lora.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/decoder.h>
#include <strata/runtime/rng.h>

namespace strata::bench {

inline constexpr std::int64_t kLoraRank = 16;

inline kernels::WeightFormat base_named(std::string_view name) {
  if (name == "full") return kernels::WeightFormat::full;
  if (const auto format = kernels::weight_format_named(name)) return *format;
  throw std::runtime_error(fmt::format("{} is no base: full, or a format of train.base", name));
}

/// Training of adapters of all linear layers, with full recomputation.
inline ProgramSet finetune_programs(const DecoderConfig& config, std::int64_t sequences,
                                    kernels::WeightFormat base, DType compute) {
  Program program = must(record_decoder(config, sequences, DecoderHead::loss, DecoderRows::whole, compute));
  for (ParamInfo& param : program.params) param.trainable = false;
  const LoraSettings settings{
      .rank = kLoraRank, .alpha = 2 * kLoraRank, .targets = {LoraSettings::kAllLinear}};
  program = must(add_lora(std::move(program), lora_groups(must(lora_targets(config, settings)))));
  if (base != kernels::WeightFormat::full)
    program = must(quantize_weights(std::move(program), base, weight_parts(config)));
  ProgramSet programs;
  programs[ProgramRole::train] =
      fuse_add_norm(recompute_regions(must(derive_backward(std::move(program), "loss")), Recompute::full));
  return programs;
}

/// Random tokens and targets.
class RandomTokens final : public BatchSource {
 public:
  RandomTokens(const DecoderConfig& config, std::int64_t sequences)
      : vocab_(static_cast<std::uint32_t>(config.vocab)), n_tokens_(sequences * config.seq) {}
  Status fill(std::int64_t index, const BatchView& batch) override {
    const Rng rng(1, static_cast<std::uint64_t>(index));
    const std::span<std::int32_t> tokens = batch["tokens"], targets = batch["targets"];
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(rng.below(i, vocab_));
      targets[i] = static_cast<std::int32_t>(rng.below(i + tokens.size(), vocab_));
    }
    return {};
  }
  std::int64_t n_counted(std::int64_t, std::int64_t n) override { return n * n_tokens_; }

 private:
  const std::uint32_t vocab_;
  const std::int64_t n_tokens_;
};

}  // namespace strata::bench
