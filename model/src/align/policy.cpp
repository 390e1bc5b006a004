#include <strata/model/align/policy.h>

#include <strata/graph/builder.h>
#include <strata/model/align/pairs.h>
#include <strata/model/decoder.h>

namespace strata {
namespace {

using Outputs = std::vector<std::pair<std::string, Value>>;

constexpr float kTokenScoreStd = 0.02f;

Value token_input(const DecoderEnd& end, const char* name) {
  return end.builder.input(name, {end.rows}, DType::f32);
}

LogProbs log_probs_of(const DecoderEnd& end, const PolicyProgram& policy, bool entropy) {
  Builder& b = end.builder;
  const Value targets = b.input("targets", {end.rows}, DType::i32);
  const auto [x, matrix] = end.head();
  return b.linear_log_probs(x, matrix, targets, {.softcap = end.softcap, .temperature = policy.temperature},
                            entropy);
}

Value token_scores(const DecoderEnd& end) {
  Builder& b = end.builder;
  return b.row_scores(end.x, b.param(kScoreWeight, {1, end.hidden}, {.init = {0, kTokenScoreStd}}));
}

}  // namespace

Result<Program> record_log_probs(const DecoderConfig& config, const PolicyProgram& policy, bool entropy,
                                 DType compute) {
  const auto end = [&](const DecoderEnd& of) -> Outputs {
    const LogProbs made = log_probs_of(of, policy, entropy);
    if (!entropy) return {{"log_probs", made.log_probs}};
    return {{"log_probs", made.log_probs}, {"entropies", made.entropies}};
  };
  return record_decoder_with(config, policy.batch, DecoderRows::packed, compute, end);
}

Result<Program> record_policy_loss(const DecoderConfig& config, const PolicyProgram& policy,
                                   const kernels::PolicyLossOptions& options, DType compute) {
  const auto end = [&](const DecoderEnd& of) -> Outputs {
    PolicyLossOperands operands;
    const LogProbs made = log_probs_of(of, policy, policy.on_policy);
    operands.log_probs = made.log_probs;
    operands.old_log_probs = policy.on_policy ? made.log_probs : token_input(of, "old_log_probs");
    operands.advantages = token_input(of, "advantages");
    operands.weights = token_input(of, "weights");
    if (options.kl_coef != 0) operands.ref_log_probs = token_input(of, "reference");
    operands.divisor = of.builder.input("divisor", {1}, DType::f32);
    const LossAndStats loss = of.builder.policy_loss(operands, options);
    Outputs outputs = {{"loss", loss.loss}, {"stats", loss.stats}, {"log_probs", made.log_probs}};
    if (policy.on_policy) outputs.emplace_back("entropies", made.entropies);
    return outputs;
  };
  return record_decoder_with(config, policy.batch, DecoderRows::packed, compute, end);
}

Result<Program> record_token_scores(const DecoderConfig& config, std::int64_t batch, DType compute) {
  const auto end = [](const DecoderEnd& of) -> Outputs { return {{"scores", token_scores(of)}}; };
  return record_decoder_with(config, batch, DecoderRows::packed, compute, end);
}

Result<Program> record_value_loss(const DecoderConfig& config, std::int64_t batch,
                                  const kernels::ValueLossOptions& options, DType compute) {
  const auto end = [&](const DecoderEnd& of) -> Outputs {
    ValueLossOperands operands;
    operands.values = token_scores(of);
    if (options.clip > 0) operands.old_values = token_input(of, "old_values");
    operands.returns = token_input(of, "returns");
    operands.weights = token_input(of, "weights");
    operands.divisor = of.builder.input("divisor", {1}, DType::f32);
    const LossAndStats made = of.builder.value_loss(operands, options);
    return {{"loss", made.loss}, {"stats", made.stats}};
  };
  return record_decoder_with(config, batch, DecoderRows::packed, compute, end);
}

}  // namespace strata
