#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/weight_parts.h>

#include "engine/tiny_run.h"

namespace strata::test {

/// The methods of adapters other than LoRA, by a name for tests.
inline const std::map<std::string, AdapterSettings>& other_methods() {
  using enum BottleneckSettings::Placement;
  static const std::map<std::string, AdapterSettings> methods = {
      {"houlsby", BottleneckSettings{.placement = attention_mlp, .width = 5, .gelu = true}},
      {"pfeiffer", BottleneckSettings{.placement = mlp, .width = 3, .scale = 0.5}},
      {"parallel", BottleneckSettings{.placement = parallel, .width = 4, .gelu = true, .scale = 4}},
      {"prompt", PromptSettings{3}},
      {"p_tuning", PTuningSettings{.tokens = 3, .encoder_width = 6}},
      {"prefix", PrefixSettings{3}},
  };
  return methods;
}

/// A tiny model with room for virtual tokens.
inline DecoderConfig tiny_for_virtual_tokens(std::string_view family) {
  DecoderConfig config = tiny_of_family(family);
  config.positions = 24;
  return config;
}

/// Whether a parameter belongs to an adapter of one of these methods.
inline bool is_of_other_method(std::string_view name) {
  return name.starts_with("prompt.") || name.ends_with(".prefix") ||
         name.find("_adapter.") != std::string_view::npos;
}

inline Program with_method(Program program, const DecoderConfig& config, const AdapterSettings& settings,
                           kernels::WeightFormat base = kernels::WeightFormat::full) {
  for (ParamInfo& param : program.params) param.trainable = false;
  program = must(add_adapter(std::move(program), config, settings));
  if (base == kernels::WeightFormat::full) return program;
  return must(quantize_weights(std::move(program), base, weight_parts(config)));
}

struct MethodProgramOptions {
  Recompute recompute = Recompute::none;
  DType compute = DType::f32;
  kernels::WeightFormat base = kernels::WeightFormat::full;
  std::int32_t interleaved = 1;  ///< micro-batches of the training program
};
/// tiny_programs() of which only the adapter is trained.
inline ProgramSet method_programs(const DecoderConfig& config, const AdapterSettings& settings,
                                  const MethodProgramOptions& options = {}) {
  const auto record = [&](std::int64_t batch, DecoderHead head) {
    return with_method(must(record_decoder(config, batch, head, DecoderRows::whole, options.compute)), config,
                       settings, options.base);
  };
  ProgramSet set;
  const Program forward = record(3, DecoderHead::loss);
  Program train = recompute_regions(must(derive_backward(forward, "loss")), options.recompute);
  if (options.interleaved > 1) train = interleave_micro_batches(train, options.interleaved);
  set[ProgramRole::eval] = fuse_add_norm(forward);
  set[ProgramRole::train] = fuse_add_norm(std::move(train));
  set[ProgramRole::infer] = fuse_add_norm(record(1, DecoderHead::logits));
  return set;
}

}  // namespace strata::test
