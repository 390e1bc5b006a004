// Records the program of a decoder.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include <strata/graph/builder.h>
#include <strata/graph/expert_attrs.h>
#include <strata/kernels/values/delta_heads.h>
#include <strata/kernels/values/expert_rules.h>
#include <strata/kernels/values/scan_heads.h>
#include <strata/model/decoder.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/str.h>

namespace strata::detail {

inline constexpr float kInitStd = 0.02f;

inline std::string layer_name(std::size_t layer) { return str("layers.", layer); }
inline std::string choice_bias_name(const std::string& layer) { return layer + ".router.choice_bias"; }

/// `seq`: tokens of a sequence; 0 for rows that name their sequences.
inline kernels::DeltaHeads delta_heads(const DeltaConfig& d, std::int64_t seq) {
  return {static_cast<std::int32_t>(d.key_heads), static_cast<std::int32_t>(d.value_heads),
          static_cast<std::int32_t>(d.key_dim), static_cast<std::int32_t>(d.value_dim),
          static_cast<std::int32_t>(seq)};
}

inline kernels::ScanHeads scan_heads(const MambaConfig& m, std::int64_t seq) {
  return {.groups = static_cast<std::int32_t>(m.groups),
          .heads = static_cast<std::int32_t>(m.heads),
          .state_dim = static_cast<std::int32_t>(m.state),
          .head_dim = static_cast<std::int32_t>(m.head_dim),
          .seq = static_cast<std::int32_t>(seq)};
}

class Recorder {
 public:
  Recorder(DecoderConfig config, std::int64_t rows, DType compute)
      : c_(std::move(config)),
        rows_(rows),
        heads_{static_cast<int>(c_.heads), static_cast<int>(c_.kv_heads)},
        compute_(compute),
        residual_std_(kInitStd / std::sqrt(2.0f * static_cast<float>(c_.layers))),
        b_(compute) {}

  Result<Program> run(DecoderHead head, DecoderRows rows, const RouterLosses& routers) {
    sums_routers_ = routers.any();
    const Value x = body(rows);
    if (head == DecoderHead::logits) return b_.finish({{"logits", logits(x)}});
    const Value targets = b_.input("targets", {rows_}, DType::i32);
    const Value divisor = b_.input("divisor", {1}, DType::f32);
    const auto [input, matrix] = head_of(x);
    const Value loss = b_.linear_cross_entropy(input, matrix, targets, divisor, c_.logit_softcap);
    if (!sums_routers_) return b_.finish({{"loss", loss}});
    const auto& layers = c_.experts.layers;
    const RouterLossAttrs attrs = {.rows = rows_ * std::count(layers.begin(), layers.end(), true),
                                   .aux_coef = routers.aux_coef,
                                   .z_coef = routers.z_coef};
    const AddedLosses added = b_.router_losses(router_sums_, attrs, b_.input("loss_factor", {1}, DType::f32));
    return b_.finish({{"loss", b_.add(loss, added.zero)}, {kRouterLossesOutput, added.losses}});
  }

  Result<Program> run_with(DecoderRows rows, const RecordDecoderEnd& end) {
    const Value x = body(rows);
    return b_.finish(end({.builder = b_,
                          .x = x,
                          .rows = rows_,
                          .hidden = c_.hidden,
                          .head = [this, x] { return head_of(x); },
                          .softcap = c_.logit_softcap}));
  }

  Result<Program> run_cached(const CacheShape& shape) {
    cache_ = shape;
    const Value tokens = b_.input("tokens", {rows_}, DType::i32);
    positions_ = b_.input("positions", {rows_}, DType::i32);
    slots_ = b_.input("slots", {rows_}, DType::i32);
    const Value logit_indices = b_.input("logit_indices", {shape.logit_rows}, DType::i32);
    const Value x = blocks(tokens);
    const Value last = norm("final_norm", b_.select_rows(x, logit_indices));
    return b_.finish({{"logits", logits(last)}});
  }

 private:
  Value body(DecoderRows rows) {
    const Value tokens = b_.input("tokens", {rows_}, DType::i32);
    if (rows == DecoderRows::packed) doc_start_ = b_.input("doc_start", {rows_}, DType::i32);
    return norm("final_norm", blocks(tokens));
  }
  Value blocks(Value tokens) {
    b_.region("embed", false);
    tokens_weight_ = weight("tokens.weight", {c_.vocab, c_.hidden}, kInitStd);
    Value x = b_.embedding(tokens, tokens_weight_);
    x = scaled(x, rounded_embedding_scale());
    x = add_positions(x);
    if (c_.embed_norm) x = norm("embed_norm", x);
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) x = block(static_cast<std::size_t>(layer), x);
    b_.region("head", false);
    return x;
  }
  /// What the head multiplies, and its matrix.
  std::pair<Value, Value> head_of(Value x) {
    return {scaled(scaled(x, c_.hybrid_factors.head), 1 / c_.logit_divisor),
            c_.tied_head ? tokens_weight_ : weight("head.weight", {c_.vocab, c_.hidden}, kInitStd)};
  }

  // Adds learned positions here, or prepares those that attention applies to queries and keys.
  Value add_positions(Value x) {
    if (c_.position == DecoderConfig::Position::alibi) return x;
    const int seq = static_cast<int>(c_.seq);
    const Value positions = cache_ ? positions_ : b_.positions(rows_, seq, doc_start_);
    if (c_.position == DecoderConfig::Position::learned) {
      const Value table =
          weight("positions.weight", {c_.positions + c_.position_offset, c_.hidden}, kInitStd);
      return b_.add(x, b_.embedding(positions, table, static_cast<int>(c_.position_offset)));
    }
    positions_ = positions;
    const bool own = c_.sliding_frequencies.has_value();
    for (std::size_t layer = 0; layer < c_.rope_layers.size(); ++layer) {
      Value& angles = angles_[own && c_.sliding[layer]];
      if (c_.rope_layers[layer] && angles.id == kNoValue) angles = rope_table(seq, own && c_.sliding[layer]);
    }
    return x;
  }
  Value rope_table(int seq, bool slides) {
    RopeFrequencies frequencies = slides ? *c_.sliding_frequencies : c_.frequencies;
    if (!c_.full_heads || slides) return b_.rope_table(seq, static_cast<int>(c_.rotary_dim), frequencies);
    const auto d = static_cast<std::int32_t>(c_.full_heads->head_dim);
    frequencies.still = d / 2 - static_cast<std::int32_t>(c_.full_heads->rotary_share * d / 2);
    return b_.rope_table(seq, d, frequencies);
  }
  // Gemma's is rounded to the dtype in which embeddings are multiplied.
  float rounded_embedding_scale() const {
    const float scale = embedding_scale(c_);
    if (!c_.scaled_embedding) return scale;
    return compute_ == DType::bf16  ? to_f32(from_f32<bf16>(scale))
           : compute_ == DType::f16 ? to_f32(from_f32<f16>(scale))
                                    : scale;
  }
  /// Columns next to each other, each multiplied by its factor.
  Value scaled_parts(Value x, std::initializer_list<std::pair<std::int64_t, float>> parts);
  Value scaled(Value x, float factor) { return factor == 1 ? x : b_.scale(x, factor); }
  Value logits(Value x) {
    const auto [input, matrix] = head_of(x);
    const Value plain = b_.linear_f32(input, matrix);
    return c_.logit_softcap > 0 ? b_.softcap(plain, c_.logit_softcap) : plain;
  }

  Value weight(const std::string& name, Shape shape, float std) {
    return b_.param(name, shape, {.init = {0, std}});
  }
  Value scale(const std::string& name, std::int64_t n) {
    return b_.param(name + ".weight", {n}, {.init = {1 - c_.norm_offset, 0}, .decay = false});
  }
  Value norm(const std::string& name, Value x) {
    const Value weight = scale(name, c_.hidden);
    if (c_.norm == DecoderConfig::Norm::rms) return b_.rmsnorm(x, weight, c_.norm_eps, c_.norm_offset);
    const Value shift = bias(name, {c_.hidden});
    return b_.layernorm(x, weight, shift, c_.norm_eps);
  }
  Value bias(const std::string& name, Shape shape) {
    return b_.param(name + ".bias", shape, {.init = {0, 0}, .decay = false});
  }
  Value linear(const std::string& name, Value x, std::int64_t out, std::int64_t in, bool has_bias,
               float std) {
    const Value w = weight(name + ".weight", {out, in}, std);
    return b_.linear(x, w, has_bias ? bias(name, {out}) : Value{});
  }

  // mixers.cpp: what mixes the tokens of a layer.
  Value mixer(const std::string& name, std::size_t layer, Value x);
  static Heads of(const LayerHeads& heads) {
    return {static_cast<int>(heads.heads), static_cast<int>(heads.kv_heads)};
  }
  Value normed_heads(const std::string& name, const LayerHeads& heads, Value qkv);
  Value keys_as_values(Value qk, const LayerHeads& heads);
  Value attention(const std::string& name, std::size_t layer, Value x);
  Value latent_norm(const std::string& name, Value x, std::int64_t n);
  Value latent_attention(const std::string& name, std::size_t layer, Value x);
  Value attend_to_latents(const std::string& name, std::size_t layer, Value qkv, Value latent, Value up,
                          const kernels::LatentHeads& heads);
  ScoreOptions scores(std::size_t layer) const;
  Value sinks(const std::string& name);
  Value attend(const std::string& name, Value qkv, const LayerHeads& heads, const ScoreOptions& scores);
  Value convolution(const std::string& name, Value x, std::int64_t channels, std::int64_t taps, bool has_bias,
                    bool silu);
  Value delta_net(const std::string& name, Value x);
  Value mixed_by_state(const std::string& name, Value qkv, const DeltaGates& gates,
                       const kernels::DeltaHeads& heads);
  Value short_conv(const std::string& name, Value x);
  Value mamba(const std::string& name, Value x);
  Value scanned(const std::string& name, Value xbc, const ScanGates& gates, Value skip);
  Value gated(const std::string& name, Value mixed, Value gate);

  Value mlp(const std::string& name, std::size_t layer, Value x) {
    return c_.experts.n > 0 && c_.experts.layers[layer] ? mixture(name, x) : dense(name, x, c_.ffn);
  }
  Value dense(const std::string& name, Value x, std::int64_t ffn) {
    using Mlp = DecoderConfig::Mlp;
    const Value inner =
        linear(name + ".mlp_in", x, is_gated(c_.mlp) ? 2 * ffn : ffn, c_.hidden, c_.mlp_bias, kInitStd);
    const HybridFactors& f = c_.hybrid_factors;
    const Value gated = scaled_parts(inner, {{ffn, f.gate}, {ffn, 1.0f}});
    const Value active = c_.mlp == Mlp::swiglu  ? b_.swiglu(gated)
                         : c_.mlp == Mlp::geglu ? b_.geglu(gated)
                         : c_.mlp == Mlp::relu  ? b_.relu(gated)
                         : c_.mlp == Mlp::relu2 ? b_.relu2(gated)
                                                : b_.gelu(gated);
    return scaled(linear(name + ".mlp_out", active, c_.hidden, ffn, c_.mlp_bias, residual_std_), f.down);
  }
  kernels::ExpertGate gate() const {
    const ExpertsConfig& e = c_.experts;
    if (e.gate_limit > 0) return {kernels::ExpertGate::Kind::clamped, e.gate_limit, e.gate_alpha};
    return {.kind = c_.mlp == DecoderConfig::Mlp::geglu   ? kernels::ExpertGate::Kind::gelu
                    : c_.mlp == DecoderConfig::Mlp::relu2 ? kernels::ExpertGate::Kind::relu2
                                                          : kernels::ExpertGate::Kind::silu};
  }
  Value mixture(const std::string& name, Value x) {
    const ExpertsConfig& e = c_.experts;
    Value logits = b_.linear_f32(x, weight(name + ".router.weight", {e.n, c_.hidden}, kInitStd));
    if (e.biases) logits = b_.router_bias(logits, bias(name + ".router", {e.n}));
    return routed_experts(name, x, logits);
  }
  Value routed_experts(const std::string& name, Value x, Value logits) {
    const ExpertsConfig& e = c_.experts;
    const auto n = static_cast<std::int32_t>(e.n), k = static_cast<std::int32_t>(e.per_token);
    const Value of_choice = e.choice_bias ? b_.param(choice_bias_name(name), {e.n},
                                                     {.init = {0, 0}, .decay = false, .is_f32_state = true})
                                          : Value{};
    Routed routed = b_.router_top_k(logits, k, e.rule, of_choice);
    const RoutedRows rows = b_.route_rows(routed, n);
    if (sums_routers_) router_sums_ = b_.router_sums(logits, rows, router_sums_);
    if (e.beside_dense) routed.weights = b_.expert_scale(routed, rows, expert_factors(name));
    const std::int64_t width = e.latent > 0 ? e.latent : c_.hidden, inner_rows = is_gated(c_.mlp) ? 2 : 1;
    const Value of_experts =
        e.latent > 0 ? linear(name + ".latent_in", x, e.latent, c_.hidden, c_.mlp_bias, kInitStd) : x;
    const Value in = weight(name + ".experts_in.weight", {e.n, inner_rows * e.ffn, width}, kInitStd);
    const Value inner = b_.expert_linear(b_.gather_rows(of_experts, rows, k), in, rows,
                                         e.biases ? bias(name + ".experts_in", {e.n, 2 * e.ffn}) : Value{});
    const Value active = b_.expert_gate(inner, routed.weights, rows.source, gate());
    const Value out = weight(name + ".experts_out.weight", {e.n, width, e.ffn}, residual_std_);
    const Value ys = b_.expert_linear(active, out, rows);
    const Value beside = beside_experts(name, x, routed, rows);
    if (e.latent == 0) return b_.sum_rows(ys, rows, k, beside);
    const Value sum = linear(name + ".latent_out", b_.sum_rows(ys, rows, k), c_.hidden, e.latent, c_.mlp_bias,
                             residual_std_);
    return beside.id == kNoValue ? sum : b_.add(sum, beside);
  }
  // What is added to the results of a token's experts. Their weights are applied before their second
  // matrices, whose biases therefore come by themselves.
  Value beside_experts(const std::string& name, Value x, const Routed& routed, const RoutedRows& rows) {
    const ExpertsConfig& e = c_.experts;
    if (e.biases) return b_.expert_bias(bias(name + ".experts_out", {e.n, c_.hidden}), routed, rows);
    return e.shared_gate ? shared(name, x) : e.shared_plain ? dense(name, x, e.shared_ffn) : Value{};
  }
  // An MLP that computes all tokens. Its gate is the weight of an expert that a router of its own always
  // chooses.
  Value shared(const std::string& name, Value x) {
    const std::int64_t ffn = c_.experts.shared_ffn;
    const Value inner = linear(name + ".mlp_in", x, 2 * ffn, c_.hidden, c_.mlp_bias, kInitStd);
    const Value logits = b_.linear_f32(x, weight(name + ".shared_gate.weight", {1, c_.hidden}, kInitStd));
    const Routed routed = b_.router_top_k(logits, 1, {.score = kernels::RouterRule::Score::sigmoid});
    return linear(name + ".mlp_out", b_.expert_gate(inner, routed.weights, {}, gate()), c_.hidden, ffn,
                  c_.mlp_bias, residual_std_);
  }
  // beside_dense.cpp: a dense MLP and a mixture next to each other.
  Value expert_factors(const std::string& name);
  Value dense_and_mixture(const std::string& name, Value x);
  Value layer_factor(const std::string& name);

  Value block(std::size_t layer, Value x) {
    const std::string name = layer_name(layer);
    b_.region(name, true);
    if (c_.mixers[layer] != Mixer::none) {
      Value added = mixer(name, layer, c_.pre_norms ? norm(name + ".attn_norm", x) : x);
      if (c_.post_norms) added = norm(name + ".attn_post_norm", added);
      x = b_.add(x, scaled(added, c_.residual_factor));
    }
    if (!has_mlp(c_, layer)) return x;
    Value added = c_.experts.beside_dense && c_.experts.n > 0
                      ? dense_and_mixture(name, x)
                      : mlp(name, layer, c_.pre_norms ? norm(name + ".mlp_norm", x) : x);
    if (c_.post_norms) added = norm(name + ".mlp_post_norm", added);
    x = b_.add(x, scaled(added, c_.residual_factor));
    return c_.layer_factor ? b_.scale_by(x, layer_factor(name)) : x;
  }

  const DecoderConfig c_;
  const std::int64_t rows_;
  const Heads heads_;
  const DType compute_;
  const float residual_std_;
  std::optional<CacheShape> cache_;  // only in a program with a KV cache
  Value tokens_weight_;
  bool sums_routers_ = false;            // for losses of routers
  Value router_sums_;                    // the sums over the layers so far
  Value doc_start_, positions_, slots_;  // set if the model and the program use them
  std::array<Value, 2> angles_;  // the angles of full layers, and of sliding layers if they have their own
  Builder b_;
};

}  // namespace strata::detail
