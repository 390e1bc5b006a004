#pragma once

#include <algorithm>
#include <utility>

#include <strata/kernels/weight_quant.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/runtime/str.h>

#include "engine/execute/frozen_runs.h"
#include "engine/states.h"
#include "engine/tiny_run.h"

namespace strata::test {

/// The training program of `dropped` kinds has dropout; `tables` has adapters also of the token embedding and
/// the head, and `tokens` has them beside rows of tokens.
enum class LowRank : std::uint8_t { lora, dora, pissa, dropped, dropped_dora, dropped_pissa, tables, tokens };

inline float dropout_of(LowRank kind) {
  return kind == LowRank::dropped || kind == LowRank::dropped_dora || kind == LowRank::dropped_pissa ? 0.25f
                                                                                                     : 0.0f;
}

/// A low-rank adapter of each module of a model: queries, keys and values have ranks of their own and two
/// scales.
inline std::vector<LoraGroup> adapters_of(const DecoderConfig& config, LowRank kind = LowRank::lora) {
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
  if (kind == LowRank::tables) {
    modules.push_back(
        {.weight = "tokens.weight", .part = {0, c.hidden, 3}, .scale = 0.5f, .place = LoraPlace::embedding});
    modules.push_back({.weight = c.tied_head ? "tokens.weight" : "head.weight",
                       .part = {0, c.vocab, 2},
                       .scale = 1.5f,
                       .place = LoraPlace::head});
  }
  for (LoraModule& module : modules) {
    module.dora = kind == LowRank::dora || kind == LowRank::dropped_dora;
    if (kind == LowRank::pissa || kind == LowRank::dropped_pissa) module.pissa = kernels::SvdMethod::exact;
  }
  return group_lora_modules(modules);
}

/// Tokens of the embedding and the head, which are the same if it is tied.
inline std::vector<TokenRows> tokens_of(const DecoderConfig& config) {
  const bool tied = config.tied_head;
  std::vector<TokenRows> rows = {{"tokens.weight", "tokens", {7, 3, config.vocab - 1}, true, tied}};
  if (!tied) rows.push_back({"head.weight", "head", {3, 11}, false, true});
  return rows;
}

/// A program of the model with the adapters of adapters_of(), which alone are trainable.
inline Program adapted_program(const DecoderConfig& config, LowRank kind, std::int64_t batch,
                               DecoderHead head, DType compute = DType::f32,
                               kernels::WeightFormat base = kernels::WeightFormat::full, float dropout = 0) {
  Program program = must(record_decoder(config, batch, head, DecoderRows::whole, compute));
  for (ParamInfo& param : program.params) param.trainable = false;
  program = must(add_lora(std::move(program), adapters_of(config, kind), dropout));
  if (kind == LowRank::tokens) program = must(add_token_rows(std::move(program), tokens_of(config)));
  if (base == kernels::WeightFormat::full) return program;
  return must(quantize_weights(std::move(program), base, weight_parts(config)));
}

/// tiny_programs() of which only adapters are trained. The base's matrices are quantized to `base`, if that
/// is not `full`.
inline ProgramSet adapted_programs(const DecoderConfig& config, Recompute recompute = Recompute::none,
                                   DType compute = DType::f32,
                                   kernels::WeightFormat base = kernels::WeightFormat::full,
                                   LowRank kind = LowRank::lora) {
  const auto record = [&](std::int64_t batch, DecoderHead head, float dropout = 0) {
    return adapted_program(config, kind, batch, head, compute, base, dropout);
  };
  ProgramSet set;
  const Program trained = record(3, DecoderHead::loss, dropout_of(kind));
  set[ProgramRole::eval] = fuse_add_norm(record(3, DecoderHead::loss));
  set[ProgramRole::train] =
      fuse_add_norm(recompute_regions(must(derive_backward(trained, "loss")), recompute));
  set[ProgramRole::infer] = fuse_add_norm(record(1, DecoderHead::logits));
  return set;
}

/// The values that a run computes with instead of the parameter `name`, whose values it holds as `held`: a
/// quantized matrix is dequantized.
inline std::vector<float> values_of(const RunPlan& plan, std::string_view name,
                                    const std::vector<float>& held) {
  const auto& specs = plan.tensors.specs;
  const auto tensor =
      std::find_if(specs.begin(), specs.end(), [&](const LayoutTensor& spec) { return spec.name == name; }) -
      specs.begin();
  const kernels::QuantizedMatrix& matrix = plan.quantized_of_tensor[static_cast<std::size_t>(tensor)];
  if (matrix.format == kernels::WeightFormat::full) return held;
  std::vector<std::byte> bytes(held.size());
  std::transform(held.begin(), held.end(), bytes.begin(),
                 [](float byte) { return static_cast<std::byte>(byte); });
  std::vector<float> values(static_cast<std::size_t>(matrix.n_elems()));
  kernels::dequantize_matrix(matrix, bytes, 0, values);
  return values;
}

/// Initial values of a run without a quantized base: what the quantized matrices of `run` stand for.
inline InitialValues dequantized_base_of(TinyRun& run) {
  return [&run, states = states_of(*run.engine, Payload::param)](const StatePiece& piece,
                                                                 std::span<float> into) -> Result<bool> {
    const auto held = states.find(std::string(piece.name));
    if (held == states.end() || std::ssize(held->second) == piece.n_elems) return false;
    const std::vector<float> values = values_of(*run.plan, piece.name, held->second);
    std::copy_n(values.begin() + piece.offset, into.size(), into.begin());
    return true;
  };
}

/// The losses of a quantized base are those of a base that has the dequantized values.
inline void expect_losses_of_the_dequantized_base(const DecoderConfig& config, LowRank kind) {
  for (const kernels::WeightFormat format : {kernels::WeightFormat::int8, kernels::WeightFormat::nf4_dq}) {
    TinyRun run(must(Engine::plan(adapted_programs(config, Recompute::full, DType::bf16, format, kind), {})));
    must(run.engine->initialize(5));
    const auto full = kernels::WeightFormat::full;
    TinyRun plain(must(Engine::plan(adapted_programs(config, Recompute::full, DType::bf16, full, kind), {})));
    must(plain.engine->initialize(5, dequantized_base_of(run)));
    EXPECT_EQ(run.train(3), plain.train(3)) << to_string(format);
  }
}

/// Step modes x placements x micro-batches, over a full and a quantized base.
inline void expect_bits_of_the_serial_step(LowRank kind) {
  for (const auto& [base, grad_accum] :
       {std::pair{kernels::WeightFormat::full, 3}, {kernels::WeightFormat::nf4, 1}}) {
    SCOPED_TRACE(to_string(base));
    SessionOptions options;
    options.grad_accum = grad_accum;
    options.clip = 1e-4;
    const auto [family, compute] =
        grad_accum == 1 ? std::pair{"gpt2", DType::f32} : std::pair{"llama", DType::bf16};
    frozen::expect_same_bits(adapted_programs(tiny_of_family(family), Recompute::none, compute, base, kind),
                             options);
  }
}

}  // namespace strata::test
