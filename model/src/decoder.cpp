#include <strata/model/decoder.h>

#include <cmath>

#include <strata/graph/builder.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr float kInitStd = 0.02f;

class Recorder {
 public:
  Recorder(DecoderConfig config, std::int64_t batch, DType compute)
      : c_(std::move(config)),
        rows_(batch * c_.seq),
        heads_{static_cast<int>(c_.heads), static_cast<int>(c_.kv_heads)},
        residual_std_(kInitStd / std::sqrt(2.0f * static_cast<float>(c_.layers))),
        b_(compute) {}

  Result<Program> run(DecoderHead head, DecoderRows rows) {
    const Value tokens = b_.input("tokens", {rows_}, DType::i32);
    if (rows == DecoderRows::packed) doc_start_ = b_.input("doc_start", {rows_}, DType::i32);
    b_.region("embed", false);
    const Value table = weight("tokens.weight", {c_.vocab, c_.hidden}, kInitStd);
    Value x = places(b_.embedding(tokens, table));
    if (c_.embed_norm) x = norm("embed_norm", x);
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) x = block(str("layers.", layer), x);
    b_.region("head", false);
    x = norm("final_norm", x);
    const Value head_weight = c_.tied_head ? table : weight("head.weight", {c_.vocab, c_.hidden}, kInitStd);
    if (head == DecoderHead::logits) return b_.finish({{"logits", b_.linear_f32(x, head_weight)}});
    const Value targets = b_.input("targets", {rows_}, DType::i32);
    const Value divisor = b_.input("divisor", {1}, DType::f32);
    return b_.finish({{"loss", b_.linear_cross_entropy(x, head_weight, targets, divisor)}});
  }

 private:
  // What tells the tokens of a row apart: added here, or kept for the queries and keys.
  Value places(Value x) {
    if (c_.position == DecoderConfig::Position::alibi) return x;
    const int seq = static_cast<int>(c_.seq);
    const Value positions = b_.positions(rows_, seq, doc_start_);
    if (c_.position == DecoderConfig::Position::learned) {
      const Value table =
          weight("positions.weight", {c_.positions + c_.position_offset, c_.hidden}, kInitStd);
      return b_.add(x, b_.embedding(positions, table, static_cast<int>(c_.position_offset)));
    }
    positions_ = positions;
    angles_ = b_.rope_table(seq, static_cast<int>(c_.rotary_dim), c_.frequencies);
    return x;
  }

  Value weight(const std::string& name, Shape shape, float std) {
    return b_.param(name, shape, {.init = {0, std}});
  }
  Value scale(const std::string& name, std::int64_t n) {
    return b_.param(name + ".weight", {n}, {.init = {1, 0}, .decay = false});
  }
  Value norm(const std::string& name, Value x) {
    const Value weight = scale(name, c_.hidden);
    if (c_.norm == DecoderConfig::Norm::rms) return b_.rmsnorm(x, weight, c_.norm_eps);
    const Value shift = b_.param(name + ".bias", {c_.hidden}, {.init = {0, 0}, .decay = false});
    return b_.layernorm(x, weight, shift, c_.norm_eps);
  }
  Value linear(const std::string& name, Value x, std::int64_t out, std::int64_t in, bool bias, float std) {
    const Value w = weight(name + ".weight", {out, in}, std);
    return b_.linear(x, w,
                     bias ? b_.param(name + ".bias", {out}, {.init = {0, 0}, .decay = false}) : Value{});
  }

  Value attention(const std::string& name, Value x) {
    const std::int64_t inner = c_.heads * c_.head_dim;
    const std::int64_t width = inner + 2 * c_.kv_heads * c_.head_dim;
    Value qkv = linear(name + ".qkv", x, width, c_.hidden, c_.qkv_bias, kInitStd);
    if (c_.qk_norm) {
      const Value q = scale(name + ".q_norm", c_.head_dim);
      qkv = b_.qk_norm(qkv, q, scale(name + ".k_norm", c_.head_dim), heads_, c_.norm_eps);
    }
    if (c_.position == DecoderConfig::Position::rope)
      qkv = b_.rope(qkv, positions_, angles_, heads_, c_.rotary_interleaved);
    const Value mixed = b_.attention(qkv, heads_, static_cast<int>(c_.seq),
                                     c_.position == DecoderConfig::Position::alibi, doc_start_);
    return linear(name + ".attn_out", mixed, c_.hidden, inner, c_.out_bias, residual_std_);
  }
  Value mlp(const std::string& name, Value x) {
    const bool gated = c_.mlp == DecoderConfig::Mlp::swiglu;
    Value inner = linear(name + ".mlp_in", x, gated ? 2 * c_.ffn : c_.ffn, c_.hidden, c_.mlp_bias, kInitStd);
    inner = gated ? b_.swiglu(inner) : c_.mlp == DecoderConfig::Mlp::relu ? b_.relu(inner) : b_.gelu(inner);
    return linear(name + ".mlp_out", inner, c_.hidden, c_.ffn, c_.mlp_bias, residual_std_);
  }
  Value block(const std::string& name, Value x) {
    b_.region(name, true);
    Value added = attention(name, norm(name + ".attn_norm", x));
    if (c_.post_norms) added = norm(name + ".attn_post_norm", added);
    x = b_.add(x, added);
    added = mlp(name, norm(name + ".mlp_norm", x));
    if (c_.post_norms) added = norm(name + ".mlp_post_norm", added);
    return b_.add(x, added);
  }

  const DecoderConfig c_;
  const std::int64_t rows_;
  const Heads heads_;
  const float residual_std_;
  Value doc_start_, positions_, angles_;  // those the model has
  Builder b_;
};

}  // namespace

std::int64_t count_parameters(const DecoderConfig& config) {
  const auto program = record_decoder(config, 1, DecoderHead::logits);
  std::int64_t n = 0;
  if (program.has_value())
    for (const ParamInfo& param : program->params) n += param.shape.n_elems();
  return n;
}

Result<Program> record_decoder(const DecoderConfig& config, std::int64_t batch, DecoderHead head,
                               DecoderRows rows, DType compute) {
  STRATA_TRY(validate(config));
  if (batch < 1)
    return Status::error(Code::invalid, str("a batch of ", batch, " sequences; it is at least 1"));
  return Recorder(filled(config), batch, compute).run(head, rows);
}

}  // namespace strata
