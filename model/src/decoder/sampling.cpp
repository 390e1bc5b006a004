#include <strata/model/sampling.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <strata/runtime/str.h>

namespace strata {
namespace {

Status check_logits(std::span<const float> logits) {
  if (logits.empty()) return Status::error(Code::invalid, "there are no logits to sample from");
  for (std::size_t id = 0; id < logits.size(); ++id)
    if (std::isnan(logits[id]) || logits[id] == std::numeric_limits<float>::infinity())
      return Status::error(Code::diverged, str("the logit of token ", id, " of ", logits.size(), " is ",
                                               std::isnan(logits[id]) ? "NaN" : "infinite"));
  return Status::ok();
}

Status check_options(const SamplingOptions& options) {
  std::string problems;
  const auto add = [&](const std::string& what) { problems += str(problems.empty() ? "" : "\n", what); };
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    add(str("the temperature is ", options.temperature, "; it must be a number, 0 or more"));
  if (options.top_k < 0) add(str("top-k is ", options.top_k, "; it must be at least 0 (0: all)"));
  if (!(options.top_p > 0 && options.top_p <= 1))
    add(str("top-p is ", options.top_p, "; it must be above 0 and at most 1"));
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, problems);
}

void normalise(std::vector<TokenProbability>& probabilities) {
  double sum = 0;
  for (const TokenProbability& probability : probabilities) sum += probability.p;
  for (TokenProbability& probability : probabilities) probability.p /= sum;
}

}  // namespace

Result<Sampler> Sampler::create(const SamplingOptions& options) {
  STRATA_TRY(check_options(options));
  return Sampler(options);
}

Status Sampler::set_options(const SamplingOptions& options) {
  STRATA_TRY(check_options(options));
  options_ = options;
  return {};
}

Result<std::span<const TokenProbability>> Sampler::candidates(std::span<const float> logits) {
  STRATA_TRY(check_logits(logits));
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::size_t n = options_.temperature == 0 ? 1 : logits.size();
  if (options_.top_k > 0) n = std::min(n, static_cast<std::size_t>(options_.top_k));
  ids_.resize(logits.size());
  std::iota(ids_.begin(), ids_.end(), 0);
  std::partial_sort(
      ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(n), ids_.end(),
      [&](std::int32_t a, std::int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  const double top = logit(ids_.front());
  if (top == -std::numeric_limits<double>::infinity())
    return Status::error(Code::diverged, str("all ", logits.size(), " logits are -infinity"));
  probabilities_.clear();
  for (std::size_t i = 0; i < n; ++i) {
    const double p = i == 0 ? 1.0 : std::exp((logit(ids_[i]) - top) / options_.temperature);
    if (p > 0) probabilities_.push_back({ids_[i], p});
  }
  normalise(probabilities_);
  if (options_.top_p < 1) apply_top_p();
  return std::span<const TokenProbability>(probabilities_);
}

void Sampler::apply_top_p() {
  double mass = 0;
  std::size_t n = 0;
  while (n < probabilities_.size() && mass < options_.top_p) mass += probabilities_[n++].p;
  probabilities_.resize(n);
  normalise(probabilities_);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits, double uniform) {
  STRATA_TRY_ASSIGN(const std::span<const TokenProbability> probabilities, candidates(logits));
  double left = uniform;
  for (const TokenProbability& probability : probabilities) {
    left -= probability.p;
    if (left < 0) return probability.id;
  }
  return probabilities.back().id;  // the sum of probabilities was rounded below `uniform`
}

}  // namespace strata
