#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include <strata/kernels/values/expert_rules.h>

#include "support/reference_ops.h"

// Mixtures of experts in f64, as their definitions read (kernels/values/expert_rules.h). Integers are
// doubles, too, since a program's values are.

namespace strata::test::reference {

struct Routing {
  Vec experts, weights;  ///< [T, k]
};

inline Vec router_scores(const double* logits, std::size_t n, const kernels::RouterRule& rule) {
  Vec scores(logits, logits + n);
  if (rule.score == kernels::RouterRule::Score::sigmoid) {
    for (double& s : scores) s = 1 / (1 + std::exp(-s));
    return scores;
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  for (double& s : scores) s = std::exp(s - largest);
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& s : scores) s /= sum;
  return scores;
}

/// Experts that may be chosen: those of the groups with the largest sums of two.
inline std::vector<bool> allowed_experts(const Vec& ranks, const kernels::RouterRule& rule) {
  const auto groups = static_cast<std::size_t>(rule.groups), each = ranks.size() / groups;
  std::vector<double> best(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    Vec of(ranks.begin() + static_cast<std::ptrdiff_t>(g * each),
           ranks.begin() + static_cast<std::ptrdiff_t>((g + 1) * each));
    std::sort(of.rbegin(), of.rend());
    best[g] = of[0] + (each > 1 ? of[1] : 0);
  }
  std::vector<std::size_t> order(groups);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return best[a] > best[b]; });
  std::vector<bool> allowed(ranks.size(), false);
  for (std::size_t i = 0; i < static_cast<std::size_t>(rule.top_groups); ++i)
    std::fill_n(allowed.begin() + static_cast<std::ptrdiff_t>(order[i] * each), each, true);
  return allowed;
}

/// logits [T, n]; `bias` [n] or empty.
inline Routing router_top_k(const Vec& logits, std::size_t n, std::size_t k, const kernels::RouterRule& rule,
                            const Vec& bias = {}) {
  Routing out;
  for (std::size_t t = 0; t < logits.size() / n; ++t) {
    const Vec scores = router_scores(logits.data() + t * n, n, rule);
    Vec ranks = scores;
    for (std::size_t e = 0; e < bias.size(); ++e) ranks[e] += bias[e];
    const std::vector<bool> allowed = allowed_experts(ranks, rule);
    std::vector<std::size_t> order;
    for (std::size_t e = 0; e < n; ++e)
      if (allowed[e]) order.push_back(e);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return ranks[a] > ranks[b]; });
    double sum = static_cast<double>(rule.eps);
    for (std::size_t j = 0; j < k; ++j) sum += scores[order[j]];
    for (std::size_t j = 0; j < k; ++j) {
      out.experts.push_back(static_cast<double>(order[j]));
      out.weights.push_back(static_cast<double>(rule.scale) * scores[order[j]] /
                            (rule.renormalize ? sum : 1));
    }
  }
  return out;
}

struct RowOrder {
  Vec offsets, source, position;
};
inline RowOrder route_rows(const Vec& experts, std::size_t n) {
  RowOrder out{Vec(n + 1, 0.0), {}, Vec(experts.size())};
  for (std::size_t e = 0; e < n; ++e) {
    for (std::size_t c = 0; c < experts.size(); ++c) {
      if (static_cast<std::size_t>(experts[c]) != e) continue;
      out.position[c] = static_cast<double>(out.source.size());
      out.source.push_back(static_cast<double>(c));
    }
    out.offsets[e + 1] = static_cast<double>(out.source.size());
  }
  return out;
}
inline Vec gather_rows(const Vec& x, const Vec& source, std::size_t k, std::size_t h) {
  Vec out;
  for (const double choice : source) {
    const auto from = x.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(choice) / k * h);
    out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(h));
  }
  return out;
}
inline Vec sum_rows(const Vec& rows, const Vec& position, std::size_t k, std::size_t h,
                    const Vec& base = {}) {
  Vec out = base.empty() ? Vec(position.size() / k * h, 0.0) : base;
  for (std::size_t c = 0; c < position.size(); ++c)
    for (std::size_t i = 0; i < h; ++i)
      out[c / k * h + i] += rows[static_cast<std::size_t>(position[c]) * h + i];
  return out;
}
/// x [R, inner], w [E, n, inner], b [E, n] or empty.
inline Vec expert_linear(const Vec& x, const Vec& w, const Vec& offsets, std::size_t n, std::size_t inner,
                         const Vec& b = {}) {
  Vec out(x.size() / inner * n, 0.0);
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e)
    for (auto r = static_cast<std::size_t>(offsets[e]); r < static_cast<std::size_t>(offsets[e + 1]); ++r)
      for (std::size_t i = 0; i < n; ++i) {
        double sum = b.empty() ? 0 : b[e * n + i];
        for (std::size_t j = 0; j < inner; ++j) sum += x[r * inner + j] * w[(e * n + i) * inner + j];
        out[r * n + i] = sum;
      }
  return out;
}
inline double gated(double g, double u, const kernels::ExpertGate& gate) {
  using Kind = kernels::ExpertGate::Kind;
  if (gate.kind == Kind::silu) return g / (1 + std::exp(-g)) * u;
  if (gate.kind == Kind::gelu) return gelu_forward({g})[0] * u;
  const auto limit = static_cast<double>(gate.limit), alpha = static_cast<double>(gate.alpha);
  g = std::min(g, limit);
  return g / (1 + std::exp(-alpha * g)) * (std::clamp(u, -limit, limit) + 1);
}
inline Vec expert_gate(const Vec& gate_up, const Vec& weights, const Vec& source, std::size_t f,
                       const kernels::ExpertGate& gate) {
  Vec out;
  for (std::size_t r = 0; r < source.size(); ++r)
    for (std::size_t i = 0; i < f; ++i)
      out.push_back(weights[static_cast<std::size_t>(source[r])] *
                    gated(gate_up[r * 2 * f + i], gate_up[(r * 2 + 1) * f + i], gate));
  return out;
}

}  // namespace strata::test::reference
