#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <strata/kernels/experts/gate.h>
#include <strata/kernels/experts/router.h>

#include "support/reference_ops.h"

/// The ops of experts in f64, written as plainly as their definitions (see reference_ops.h).
namespace strata::test::reference {

/// The scores of one token.
inline Vec router_scores(const Vec& logits, kernels::RouterRule::Score score) {
  Vec s(logits.size());
  if (score == kernels::RouterRule::Score::sigmoid) {
    std::transform(logits.begin(), logits.end(), s.begin(),
                   [](double l) { return 1.0 / (1.0 + std::exp(-l)); });
    return s;
  }
  const double top = *std::max_element(logits.begin(), logits.end());
  std::transform(logits.begin(), logits.end(), s.begin(), [&](double l) { return std::exp(l - top); });
  const double sum = std::accumulate(s.begin(), s.end(), 0.0);
  for (double& x : s) x /= sum;
  return s;
}

/// The numbers of the `n` largest values, of equal ones the first; NaN is below all numbers.
inline std::vector<std::size_t> largest(const Vec& values, std::size_t n) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::isnan(values[b]) ? !std::isnan(values[a]) : values[a] > values[b];
  });
  order.resize(n);
  return order;
}

/// The experts of one token.
inline std::vector<std::size_t> router_choice(const Vec& logits, const Vec& bias,
                                              const kernels::RouterRule& rule, std::size_t k) {
  Vec choice = router_scores(logits, rule.score);
  for (std::size_t i = 0; i < bias.size(); ++i) choice[i] += bias[i];
  const auto groups = static_cast<std::size_t>(rule.groups);
  const std::size_t length = choice.size() / groups;
  if (rule.top_groups == rule.groups) return largest(choice, k);
  Vec sums(groups), allowed(choice.size(), -1e300);
  for (std::size_t g = 0; g < groups; ++g) {
    const Vec group(choice.begin() + static_cast<std::ptrdiff_t>(g * length),
                    choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * length));
    const auto two = largest(group, 2);
    sums[g] = rule.by_best ? group[two[0]] : group[two[0]] + group[two[1]];
  }
  for (const std::size_t g : largest(sums, static_cast<std::size_t>(rule.top_groups)))
    for (std::size_t i = g * length; i < (g + 1) * length; ++i) allowed[i] = choice[i];
  return largest(allowed, k);
}

/// The weights of the experts that one token chose.
inline Vec router_weights(const Vec& logits, const std::vector<std::size_t>& experts,
                          const kernels::RouterRule& rule) {
  const Vec s = router_scores(logits, rule.score);
  double sum = static_cast<double>(rule.eps);
  for (const std::size_t e : experts) sum += s[e];
  Vec weights;
  for (const std::size_t e : experts)
    weights.push_back(static_cast<double>(rule.scale) * (rule.renormalize ? s[e] / sum : s[e]));
  return weights;
}

/// The gate of one element.
inline double expert_gate(const kernels::ExpertGate& gate, double g, double u) {
  using Kind = kernels::ExpertGate::Kind;
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  if (gate.kind == Kind::silu) return g * sigmoid(g) * u;
  if (gate.kind == Kind::gelu)
    return 0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g))) * u;
  if (gate.kind == Kind::relu2) return g > 0 ? g * g : 0.0;
  const auto limit = static_cast<double>(gate.limit);
  const double x = std::min(g, limit), y = std::clamp(u, -limit, limit);
  return x * sigmoid(static_cast<double>(gate.alpha) * x) * (y + 1.0);
}

/// The derivative of f at x.
template <class F>
double slope(const F& f, double x, double step = 1e-5) {
  return (f(x + step) - f(x - step)) / (2.0 * step);
}

}  // namespace strata::test::reference
