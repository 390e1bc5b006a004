#include <strata/model/decoder.h>

#include <cmath>

#include <strata/graph/builder.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr float kInitStd = 0.02f;

class Recorder {
 public:
  explicit Recorder(const DecoderConfig& config) : config_(config) {}

  Result<Program> run(std::int64_t batch, DecoderHead head) {
    const std::int64_t rows = batch * config_.seq;
    const Value tokens = b_.input("tokens", {rows}, DType::i32);
    b_.region("embed", false);
    const Value wte = weight("wte.weight", {config_.vocab, config_.hidden}, kInitStd);
    const Value wpe = weight("wpe.weight", {config_.seq, config_.hidden}, kInitStd);
    Value x = b_.embedding(tokens, wte, wpe, static_cast<int>(config_.seq));
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) x = block(str("h.", layer), x);
    b_.region("head", false);
    const Value logits = b_.linear(norm("ln_f", x), wte);
    if (head == DecoderHead::logits) return b_.finish({{"logits", logits}});
    const Value targets = b_.input("targets", {rows}, DType::i32);
    return b_.finish({{"loss", b_.cross_entropy(logits, targets)}});
  }

 private:
  Value weight(const std::string& name, Shape shape, float std) {
    return b_.param(name, shape, {.init = {0, std}});
  }
  Value norm(const std::string& name, Value x) {
    const Value scale = b_.param(name + ".weight", {config_.hidden}, {.init = {1, 0}, .decay = false});
    const Value shift = b_.param(name + ".bias", {config_.hidden}, {.init = {0, 0}, .decay = false});
    return b_.layernorm(x, scale, shift, config_.norm_eps);
  }
  Value linear(const std::string& name, Value x, std::int64_t out, std::int64_t in, float std) {
    const Value w = weight(name + ".weight", {out, in}, std);
    return b_.linear(x, w, b_.param(name + ".bias", {out}, {.init = {0, 0}, .decay = false}));
  }
  Value block(const std::string& name, Value x) {
    b_.region(name, true);
    const std::int64_t h = config_.hidden;
    const float residual_std = kInitStd / std::sqrt(2.0f * static_cast<float>(config_.layers));
    const Value qkv = linear(name + ".attn.c_attn", norm(name + ".ln_1", x), 3 * h, h, kInitStd);
    const Value mixed = b_.attention(qkv, static_cast<int>(config_.heads), static_cast<int>(config_.seq));
    x = b_.add(x, linear(name + ".attn.c_proj", mixed, h, h, residual_std));
    const Value inner =
        b_.gelu(linear(name + ".mlp.c_fc", norm(name + ".ln_2", x), config_.ffn, h, kInitStd));
    return b_.add(x, linear(name + ".mlp.c_proj", inner, h, config_.ffn, residual_std));
  }

  const DecoderConfig& config_;
  Builder b_;
};

}  // namespace

Status validate(const DecoderConfig& c) {
  std::string problems;
  const auto need = [&](bool ok, const std::string& what) {
    if (!ok) problems += (problems.empty() ? "" : "\n") + what;
  };
  need(c.family == "gpt2", str("model.family is ", c.family, "; this build knows gpt2"));
  for (const auto& [name, value] : {std::pair{"layers", c.layers},
                                    {"hidden", c.hidden},
                                    {"heads", c.heads},
                                    {"ffn", c.ffn},
                                    {"vocab", c.vocab},
                                    {"seq", c.seq}})
    need(value >= 1 && value <= (std::int64_t{1} << 31),
         str("model.", name, " is ", value, "; it is at least 1"));
  need(c.heads < 1 || c.hidden % c.heads == 0, str("model.hidden is ", c.hidden, " and model.heads ", c.heads,
                                                   "; the first must be a multiple of the second"));
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, problems);
}

std::int64_t count_parameters(const DecoderConfig& c) {
  const std::int64_t block = 4 * c.hidden + (3 * c.hidden * c.hidden + 3 * c.hidden) +
                             (c.hidden * c.hidden + c.hidden) + (c.ffn * c.hidden + c.ffn) +
                             (c.hidden * c.ffn + c.hidden);
  return (c.vocab + c.seq) * c.hidden + c.layers * block + 2 * c.hidden;
}

Result<Program> record_decoder(const DecoderConfig& config, std::int64_t batch, DecoderHead head) {
  STRATA_TRY(validate(config));
  if (batch < 1)
    return Status::error(Code::invalid, str("a batch of ", batch, " sequences; it is at least 1"));
  return Recorder(config).run(batch, head);
}

}  // namespace strata
