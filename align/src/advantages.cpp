#include <strata/align/advantages.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <strata/runtime/assert.h>

namespace strata {
namespace {

struct Moments {
  double mean = 0, deviation = 0;
};

Moments moments_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Moments moments{std::accumulate(values.begin(), values.end(), 0.0) / n};
  if (values.size() < 2) return moments;
  double squares = 0;
  for (const double value : values) squares += (value - moments.mean) * (value - moments.mean);
  moments.deviation = std::sqrt(squares / (n - 1));
  return moments;
}

}  // namespace

void group_advantages(std::span<const double> rewards, std::size_t size, bool by_deviation,
                      std::span<double> advantages) {
  constexpr double kEpsilon = 1e-4;
  STRATA_ASSERT(size > 0 && rewards.size() % size == 0 && advantages.size() == rewards.size(), rewards.size(),
                " rewards in groups of ", size);
  for (std::size_t first = 0; first < rewards.size(); first += size) {
    const Moments moments = moments_of(rewards.subspan(first, size));
    for (std::size_t i = first; i < first + size; ++i)
      advantages[i] = (rewards[i] - moments.mean) / (by_deviation ? moments.deviation + kEpsilon : 1.0);
  }
}

void generalized_advantages(std::span<const double> rewards, std::span<const float> values,
                            const GaeOptions& options, std::span<double> advantages,
                            std::span<double> returns) {
  double next_value = 0, next_advantage = 0;
  for (std::size_t t = rewards.size(); t-- > 0;) {
    const auto value = static_cast<double>(values[t]);
    const double delta = rewards[t] + options.gamma * next_value - value;
    next_advantage = delta + options.gamma * options.lambda * next_advantage;
    next_value = value;
    advantages[t] = next_advantage;
    returns[t] = next_advantage + value;
  }
}

void whiten(std::span<double> values) {
  constexpr double kEpsilon = 1e-8;
  if (values.empty()) return;
  const Moments moments = moments_of(values);
  for (double& value : values) value = (value - moments.mean) / (moments.deviation + kEpsilon);
}

double KlControl::after(double coefficient, double kl, double n) const {
  constexpr double kMost = 0.2;
  if (target <= 0) return coefficient;
  return coefficient * (1 + std::clamp(kl / target - 1, -kMost, kMost) * std::min(1.0, n / horizon));
}

}  // namespace strata
