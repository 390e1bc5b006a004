#include <strata/model/align/pairs.h>

#include <strata/graph/builder.h>
#include <strata/model/decoder.h>

namespace strata {
namespace {

constexpr float kScoreStd = 0.02f;

/// The scores of all documents.
Value scores_of(const DecoderEnd& end, const PairProgram& pairs) {
  Builder& b = end.builder;
  const Value segments = b.input("segments", {end.rows}, DType::i32);
  const std::int32_t n = 2 * pairs.max_pairs;
  if (pairs.objective == PairObjective::reward) {
    const Value weight = b.param(kScoreWeight, {1, end.hidden}, {.init = {0, kScoreStd}});
    return b.segment_sum(b.row_scores(end.x, weight), segments, n);
  }
  const Value targets = b.input("targets", {end.rows}, DType::i32);
  const auto [x, matrix] = end.head();
  const Value log_probs = b.linear_log_probs(x, matrix, targets, {.softcap = end.softcap}).log_probs;
  return b.segment_sum(log_probs, segments, n, pairs.objective == PairObjective::ipo);
}

kernels::PairLossOptions options_of(const PairProgram& pairs) {
  kernels::PairLossOptions options;
  if (pairs.objective == PairObjective::reward) {
    options.beta = 1;
    return options;
  }
  options.kind =
      pairs.objective == PairObjective::ipo ? kernels::PairLossKind::ipo : kernels::PairLossKind::sigmoid;
  options.beta = pairs.beta;
  options.label_smoothing = pairs.label_smoothing;
  return options;
}

}  // namespace

Result<Program> record_pair_loss(const DecoderConfig& config, const PairProgram& pairs, DType compute) {
  const auto end = [&](const DecoderEnd& of) -> std::vector<std::pair<std::string, Value>> {
    Builder& b = of.builder;
    PairLossOperands operands;
    operands.scores = scores_of(of, pairs);
    if (pairs.objective != PairObjective::reward)
      operands.ref_scores = b.input("reference", {2 * pairs.max_pairs}, DType::f32);
    operands.weights = b.input("weights", {pairs.max_pairs}, DType::f32);
    operands.divisor = b.input("divisor", {1}, DType::f32);
    const LossAndStats made = b.pair_loss(operands, options_of(pairs));
    return {{"loss", made.loss}, {"stats", made.stats}};
  };
  return record_decoder_with(config, pairs.batch, DecoderRows::packed, compute, end);
}

Result<Program> record_pair_scores(const DecoderConfig& config, const PairProgram& pairs, DType compute) {
  const auto end = [&](const DecoderEnd& of) -> std::vector<std::pair<std::string, Value>> {
    return {{"scores", scores_of(of, pairs)}};
  };
  return record_decoder_with(config, pairs.batch, DecoderRows::packed, compute, end);
}

}  // namespace strata
