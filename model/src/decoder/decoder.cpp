#include <strata/model/decoder.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <strata/graph/builder.h>
#include <strata/graph/expert_attrs.h>
#include <strata/kernels/values/expert_rules.h>
#include <strata/runtime/float16.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr float kInitStd = 0.02f;

std::string layer_name(std::size_t layer) { return str("layers.", layer); }
std::string choice_bias_name(const std::string& layer) { return layer + ".router.choice_bias"; }

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
    return {scaled(x, 1 / c_.logit_divisor),
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
    const auto table = [&](const RopeFrequencies& frequencies) {
      return b_.rope_table(seq, static_cast<int>(c_.rotary_dim), frequencies);
    };
    const bool own = c_.sliding_frequencies.has_value();
    for (std::size_t layer = 0; layer < c_.rope_layers.size(); ++layer) {
      Value& angles = angles_[own && c_.sliding[layer]];
      if (c_.rope_layers[layer] && angles.id == kNoValue)
        angles = table(own && c_.sliding[layer] ? *c_.sliding_frequencies : c_.frequencies);
    }
    return x;
  }
  // Gemma's is rounded to the dtype in which embeddings are multiplied.
  float rounded_embedding_scale() const {
    const float scale = embedding_scale(c_);
    if (!c_.scaled_embedding) return scale;
    return compute_ == DType::bf16  ? to_f32(from_f32<bf16>(scale))
           : compute_ == DType::f16 ? to_f32(from_f32<f16>(scale))
                                    : scale;
  }
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

  Value normed_heads(const std::string& name, Value qkv) {
    if (c_.qk_norm == DecoderConfig::QkNorm::none) return qkv;
    const bool whole = c_.qk_norm == DecoderConfig::QkNorm::whole;
    const Value q = scale(name + ".q_norm", c_.head_dim * (whole ? c_.heads : 1));
    const Value k = scale(name + ".k_norm", c_.head_dim * (whole ? c_.kv_heads : 1));
    return b_.qk_norm(qkv, q, k, heads_, c_.norm_eps, c_.norm_offset);
  }
  Value attention(const std::string& name, std::size_t layer, Value x) {
    const std::int64_t inner = c_.heads * c_.head_dim;
    const std::int64_t width = inner + 2 * c_.kv_heads * c_.head_dim;
    Value qkv = linear(name + ".qkv", x, width, c_.hidden, c_.qkv_bias, kInitStd);
    if (!c_.qk_norm_after_rope) qkv = normed_heads(name, qkv);
    if (c_.position == DecoderConfig::Position::rope && c_.rope_layers[layer])
      qkv = b_.rope(qkv, positions_, angles_[c_.sliding_frequencies.has_value() && c_.sliding[layer]], heads_,
                    c_.rotary_interleaved);
    if (c_.qk_norm_after_rope) qkv = normed_heads(name, qkv);
    const Value mixed = attend(name, qkv, scores(layer));
    return linear(name + ".attn_out", mixed, c_.hidden, inner, c_.out_bias, residual_std_);
  }
  // A window of at least `seq` tokens is no window.
  ScoreOptions scores(std::size_t layer) const {
    const bool slides = c_.sliding[layer] && c_.window < c_.seq;
    return {.alibi = c_.position == DecoderConfig::Position::alibi,
            .window = slides ? static_cast<int>(c_.window) : 0,
            .softcap = c_.score_softcap,
            .scale = score_scale(c_)};
  }
  Value attend(const std::string& name, Value qkv, const ScoreOptions& scores) {
    const Value sinks =
        c_.sinks ? b_.param(name + ".sinks", {c_.heads}, {.init = {0, kInitStd}, .decay = false}) : Value{};
    if (!cache_) return b_.attention(qkv, heads_, static_cast<int>(c_.seq), scores, doc_start_, sinks);
    const Shape shape = {cache_->sequences, c_.kv_heads, cache_->context, c_.head_dim};
    const Value keys = b_.state(name + ".keys", shape), values = b_.state(name + ".values", shape);
    return b_.cached_attention(qkv, positions_, slots_, keys, values, heads_, scores, sinks);
  }
  Value mlp(const std::string& name, std::size_t layer, Value x) {
    return c_.experts.n > 0 && c_.experts.layers[layer] ? mixture(name, x) : dense(name, x, c_.ffn);
  }
  Value dense(const std::string& name, Value x, std::int64_t ffn) {
    using Mlp = DecoderConfig::Mlp;
    const Value inner =
        linear(name + ".mlp_in", x, is_gated(c_.mlp) ? 2 * ffn : ffn, c_.hidden, c_.mlp_bias, kInitStd);
    const Value active = c_.mlp == Mlp::swiglu  ? b_.swiglu(inner)
                         : c_.mlp == Mlp::geglu ? b_.geglu(inner)
                         : c_.mlp == Mlp::relu  ? b_.relu(inner)
                                                : b_.gelu(inner);
    return linear(name + ".mlp_out", active, c_.hidden, ffn, c_.mlp_bias, residual_std_);
  }
  kernels::ExpertGate gate() const {
    const ExpertsConfig& e = c_.experts;
    if (e.gate_limit > 0) return {kernels::ExpertGate::Kind::clamped, e.gate_limit, e.gate_alpha};
    return {.kind = c_.mlp == DecoderConfig::Mlp::geglu ? kernels::ExpertGate::Kind::gelu
                                                        : kernels::ExpertGate::Kind::silu};
  }
  Value mixture(const std::string& name, Value x) {
    const ExpertsConfig& e = c_.experts;
    const auto n = static_cast<std::int32_t>(e.n), k = static_cast<std::int32_t>(e.per_token);
    Value logits = b_.linear_f32(x, weight(name + ".router.weight", {e.n, c_.hidden}, kInitStd));
    if (e.biases) logits = b_.router_bias(logits, bias(name + ".router", {e.n}));
    const Value of_choice = e.choice_bias ? b_.param(choice_bias_name(name), {e.n},
                                                     {.init = {0, 0}, .decay = false, .is_f32_state = true})
                                          : Value{};
    const Routed routed = b_.router_top_k(logits, k, e.rule, of_choice);
    const RoutedRows rows = b_.route_rows(routed, n);
    if (sums_routers_) router_sums_ = b_.router_sums(logits, rows, router_sums_);
    const Value in = weight(name + ".experts_in.weight", {e.n, 2 * e.ffn, c_.hidden}, kInitStd);
    const Value inner = b_.expert_linear(b_.gather_rows(x, rows, k), in, rows,
                                         e.biases ? bias(name + ".experts_in", {e.n, 2 * e.ffn}) : Value{});
    const Value active = b_.expert_gate(inner, routed.weights, rows.source, gate());
    const Value out = weight(name + ".experts_out.weight", {e.n, c_.hidden, e.ffn}, residual_std_);
    const Value ys = b_.expert_linear(active, out, rows);
    return b_.sum_rows(ys, rows, k, beside_experts(name, x, routed, rows));
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
  Value block(std::size_t layer, Value x) {
    const std::string name = layer_name(layer);
    b_.region(name, true);
    Value added = attention(name, layer, c_.pre_norms ? norm(name + ".attn_norm", x) : x);
    if (c_.post_norms) added = norm(name + ".attn_post_norm", added);
    x = b_.add(x, scaled(added, c_.residual_factor));
    added = mlp(name, layer, c_.pre_norms ? norm(name + ".mlp_norm", x) : x);
    if (c_.post_norms) added = norm(name + ".mlp_post_norm", added);
    return b_.add(x, scaled(added, c_.residual_factor));
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

}  // namespace

std::vector<std::string> choice_biases(const DecoderConfig& config) {
  std::vector<std::string> names;
  const ExpertsConfig experts = with_derived_sizes(config).experts;
  if (experts.n == 0 || !experts.choice_bias) return names;
  for (std::size_t layer = 0; layer < experts.layers.size(); ++layer)
    if (experts.layers[layer]) names.push_back(choice_bias_name(layer_name(layer)));
  return names;
}

std::int64_t count_parameters(const DecoderConfig& config) {
  const auto program = record_decoder(config, 1, DecoderHead::logits);
  std::int64_t n = 0;
  if (program.has_value())
    for (const ParamInfo& param : program->params) n += param.shape.n_elems();
  return n;
}

namespace {

Status check_batch(const DecoderConfig& config, std::int64_t batch) {
  STRATA_TRY(validate(config));
  if (batch >= 1) return {};
  return Status::error(Code::invalid, str("a batch of ", batch, " sequences; it must be at least 1"));
}

Status check_router_losses(const DecoderConfig& config, DecoderHead head, const RouterLosses& routers) {
  if (!routers.any()) return {};
  const std::string asked =
      str("losses of routers by coefficients of ", routers.aux_coef, " and ", routers.z_coef);
  if (head != DecoderHead::loss)
    return Status::error(Code::invalid, str(asked, " of a program without loss"));
  if (has_softmax_routers(config)) return {};
  return Status::error(Code::invalid, str(asked, ", but ", config.family, " has no routers with a softmax"));
}

}  // namespace

Result<Program> record_decoder(const DecoderConfig& config, std::int64_t batch, DecoderHead head,
                               DecoderRows rows, DType compute, const RouterLosses& routers) {
  STRATA_TRY(check_batch(config, batch));
  const DecoderConfig whole = with_derived_sizes(config);
  STRATA_TRY(check_router_losses(whole, head, routers));
  return Recorder(whole, batch * whole.seq, compute).run(head, rows, routers);
}

Result<Program> record_decoder_with(const DecoderConfig& config, std::int64_t batch, DecoderRows rows,
                                    DType compute, const RecordDecoderEnd& end) {
  STRATA_TRY(check_batch(config, batch));
  const DecoderConfig whole = with_derived_sizes(config);
  return Recorder(whole, batch * whole.seq, compute).run_with(rows, end);
}

std::uint64_t cache_bytes(const DecoderConfig& config, const CacheShape& shape, DType compute) {
  const DecoderConfig c = with_derived_sizes(config);
  return static_cast<std::uint64_t>(2 * c.layers * shape.sequences * c.kv_heads * shape.context *
                                    c.head_dim) *
         size_of(compute);
}

Result<Program> record_cached_decoder(const DecoderConfig& config, const CacheShape& shape, DType compute) {
  DecoderConfig c = with_derived_sizes(config);  // before setting seq, so that a learned table keeps its size
  c.seq = shape.context;
  c = with_derived_sizes(std::move(c));  // a model without a limit gets that of the context
  STRATA_TRY(validate(c));
  if (shape.rows < 1 || shape.sequences < 1 || shape.logit_rows < 1)
    return Status::error(
        Code::invalid, str("a cached program of ", shape.rows, " rows, ", shape.sequences, " sequences and ",
                           shape.logit_rows, " rows of logits; each must be at least 1"));
  return Recorder(std::move(c), shape.rows, compute).run_cached(shape);
}

}  // namespace strata
