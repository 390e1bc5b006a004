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
  if (!(options.min_p >= 0 && options.min_p <= 1))
    add(str("min-p is ", options.min_p, "; it must be from 0 to 1"));
  const auto check_penalty = [&](const char* name, double value) {
    if (!(std::abs(value) <= kMaxPenalty))
      add(str("the ", name, " penalty is ", value, "; it must be from -", kMaxPenalty, " to ", kMaxPenalty));
  };
  check_penalty("presence", options.presence_penalty);
  check_penalty("frequency", options.frequency_penalty);
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= kMaxRepetitionPenalty))
    add(str("the repetition penalty is ", options.repetition_penalty, "; it must be above 0 and at most ",
            kMaxRepetitionPenalty));
  for (const LogitBias& each : options.logit_bias)
    if (each.id < 0 || !(std::abs(each.bias) <= kMaxLogitBias))
      add(str("the bias of token ", each.id, " is ", each.bias, "; ids are at least 0, and a bias is from -",
              kMaxLogitBias, " to ", kMaxLogitBias));
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, problems);
}

/// A finite logit stays finite, whatever it is multiplied by.
float as_logit(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(
      value == -std::numeric_limits<double>::infinity() ? value : std::clamp(value, -kMost, kMost));
}

double penalized(double logit, std::int32_t times, const SamplingOptions& options) {
  logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
  return logit - options.frequency_penalty * times - (times > 0 ? options.presence_penalty : 0.0);
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

// The logits themselves where nothing changes them.
std::span<const float> Sampler::adjusted(std::span<const float> logits, const TokenCounts& before) {
  if (options_.logit_bias.empty() && !options_.penalizes()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : options_.logit_bias)
    if (const auto at = static_cast<std::size_t>(id); at < adjusted_.size())
      adjusted_[at] = as_logit(adjusted_[at] + bias);
  if (options_.penalizes())
    for (const auto& [id, times] : before.generated())
      if (const auto at = static_cast<std::size_t>(id); at < adjusted_.size())
        adjusted_[at] = as_logit(penalized(adjusted_[at], times, options_));
  return adjusted_;
}

Result<std::span<const TokenProbability>> Sampler::candidates(std::span<const float> given,
                                                              const TokenCounts& before) {
  STRATA_TRY(check_logits(given));
  const std::span<const float> logits = adjusted(given, before);
  const auto top = std::max_element(logits.begin(), logits.end());  // the first of equal ones
  if (*top == -std::numeric_limits<float>::infinity())
    return Status::error(Code::diverged, str("all ", logits.size(), " logits are -infinity"));
  probabilities_.clear();
  if (options_.temperature == 0) {
    probabilities_.push_back({static_cast<std::int32_t>(top - logits.begin()), 1.0});
    return std::span<const TokenProbability>(probabilities_);
  }
  const double highest = *top;
  const auto add = [&](std::int32_t id) {
    const double logit = logits[static_cast<std::size_t>(id)];
    const double p = std::exp((logit - highest) / options_.temperature);  // 1 for the most likely one
    if (p > 0 && p >= options_.min_p) probabilities_.push_back({id, p});
  };
  const auto n = std::ssize(logits);
  if (options_.top_k > 0) {
    const std::int64_t k = std::min<std::int64_t>(options_.top_k, n);
    sort_ids(logits, k);
    std::for_each(ids_.begin(), ids_.begin() + k, add);
  } else {
    for (std::int64_t id = 0; id < n; ++id) add(static_cast<std::int32_t>(id));
  }
  normalise(probabilities_);
  if (options_.top_p < 1) apply_top_p();
  return std::span<const TokenProbability>(probabilities_);
}

// The first `n` of ids_ are the most likely, in order.
void Sampler::sort_ids(std::span<const float> logits, std::int64_t n) {
  ids_.resize(logits.size());
  std::iota(ids_.begin(), ids_.end(), 0);
  std::partial_sort(ids_.begin(), ids_.begin() + n, ids_.end(), [&](std::int32_t a, std::int32_t b) {
    const float of_a = logits[static_cast<std::size_t>(a)], of_b = logits[static_cast<std::size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
}

// Most of the mass is usually in few tokens, so only as many are sorted as may be needed.
void Sampler::apply_top_p() {
  constexpr std::size_t kFirst = 64, kTimes = 4;
  const auto likelier = [](const TokenProbability& a, const TokenProbability& b) {
    return a.p != b.p ? a.p > b.p : a.id < b.id;
  };
  double mass = 0;
  std::size_t n = 0, sorted = 0;
  for (; n < probabilities_.size() && mass < options_.top_p; ++n) {
    if (n == sorted) {
      sorted = std::min(probabilities_.size(), sorted == 0 ? kFirst : sorted * kTimes);
      std::partial_sort(probabilities_.begin() + static_cast<std::ptrdiff_t>(n),
                        probabilities_.begin() + static_cast<std::ptrdiff_t>(sorted), probabilities_.end(),
                        likelier);
    }
    mass += probabilities_[n].p;
  }
  probabilities_.resize(n);
  normalise(probabilities_);
}

Result<std::int32_t> Sampler::sample(std::span<const float> logits, double uniform,
                                     const TokenCounts& before) {
  STRATA_TRY_ASSIGN(const std::span<const TokenProbability> probabilities, candidates(logits, before));
  double left = uniform;
  for (const TokenProbability& probability : probabilities) {
    left -= probability.p;
    if (left < 0) return probability.id;
  }
  return probabilities.back().id;  // the sum of probabilities was rounded below `uniform`
}

}  // namespace strata
