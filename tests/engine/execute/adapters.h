#pragma once

#include <strata/model/adapter/weight_parts.h>
#include <strata/runtime/str.h>

#include "engine/tiny_run.h"

namespace strata::test {

/// A low-rank adapter of each module of a model: queries, keys and values have ranks of their own and two
/// scales.
inline std::vector<LoraGroup> adapters_of(const DecoderConfig& config, bool dora = false) {
  const DecoderConfig c = with_derived_sizes(config);
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  std::vector<LoraModule> modules;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string name = str("layers.", layer, ".");
    modules.push_back({name + "qkv.weight", {q, kv, 2}, 0.5f});
    modules.push_back({name + "qkv.weight", {q + kv, kv, 1}, 2.0f});
    modules.push_back({name + "qkv.weight", {0, q, 3}, 2.0f});
    modules.push_back({name + "attn_out.weight", {0, c.hidden, 4}, 1.0f});
    if (is_gated(c.mlp)) modules.push_back({name + "mlp_in.weight", {c.ffn, c.ffn, 2}, 1.5f});
    modules.push_back({name + "mlp_in.weight", {0, c.ffn, 2}, 1.5f});
    modules.push_back({name + "mlp_out.weight", {0, c.hidden, 2}, 1.5f});
  }
  for (LoraModule& module : modules) module.dora = dora;
  return group_lora_modules(modules);
}

/// tiny_programs() of which only adapters are trained, with DoRA if `dora` is set. The base's matrices are
/// quantized to `base`, if that is not `full`.
inline ProgramSet adapted_programs(const DecoderConfig& config, Recompute recompute = Recompute::none,
                                   DType compute = DType::f32,
                                   kernels::WeightFormat base = kernels::WeightFormat::full,
                                   bool dora = false) {
  const std::vector<LoraGroup> adapters = adapters_of(config, dora);
  const auto record = [&](std::int64_t batch, DecoderHead head) {
    Program program = must(record_decoder(config, batch, head, DecoderRows::whole, compute));
    for (ParamInfo& param : program.params) param.trainable = false;
    program = must(add_lora(std::move(program), adapters));
    if (base == kernels::WeightFormat::full) return program;
    return must(quantize_weights(std::move(program), base, weight_parts(config)));
  };
  ProgramSet set;
  const Program forward = record(3, DecoderHead::loss);
  set[ProgramRole::eval] = fuse_add_norm(forward);
  set[ProgramRole::train] =
      fuse_add_norm(recompute_regions(must(derive_backward(forward, "loss")), recompute));
  set[ProgramRole::infer] = fuse_add_norm(record(1, DecoderHead::logits));
  return set;
}

}  // namespace strata::test
