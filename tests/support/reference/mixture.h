#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include <strata/kernels/values/expert_rules.h>

#include "support/reference/experts.h"

// The ops of experts in f64 on whole tensors. Integers are doubles, too, since a program's values are.

namespace strata::test::reference {

struct Routing {
  Vec experts, weights;  ///< [T, k]
};
/// logits [T, n]; `bias` [n] or empty.
inline Routing route(const Vec& logits, std::size_t n, std::size_t k, const kernels::RouterRule& rule,
                     const Vec& bias) {
  Routing out;
  for (std::size_t t = 0; t < logits.size() / n; ++t) {
    const Vec of_token(logits.begin() + static_cast<std::ptrdiff_t>(t * n),
                       logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * n));
    const std::vector<std::size_t> chosen = router_choice(of_token, bias, rule, k);
    out.experts.insert(out.experts.end(), chosen.begin(), chosen.end());
    const Vec weights = router_weights(of_token, chosen, rule);
    out.weights.insert(out.weights.end(), weights.begin(), weights.end());
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
/// b [E, h]; experts and weights [T, k].
inline Vec expert_bias(const Vec& b, const Vec& weights, const Vec& experts, std::size_t k, std::size_t h) {
  Vec out(weights.size() / k * h, 0.0);
  for (std::size_t c = 0; c < weights.size(); ++c)
    for (std::size_t i = 0; i < h; ++i)
      out[c / k * h + i] += weights[c] * b[static_cast<std::size_t>(experts[c]) * h + i];
  return out;
}
inline Vec gate_rows(const Vec& gate_up, const Vec& weights, const Vec& source, std::size_t f,
                     const kernels::ExpertGate& gate) {
  Vec out;
  const auto parts = static_cast<std::size_t>(gate.parts());
  for (std::size_t r = 0; r < weights.size(); ++r)
    for (std::size_t i = 0; i < f; ++i)
      out.push_back(weights[source.empty() ? r : static_cast<std::size_t>(source[r])] *
                    expert_gate(gate, gate_up[r * parts * f + i], gate_up[(r * parts + parts - 1) * f + i]));
  return out;
}

/// The sums of a layer's routers: choices and probabilities of each expert, and squares of logsumexp.
inline Vec router_sums(const Vec& logits, const Vec& offsets, std::size_t n) {
  Vec sums(2 * n + 1, 0.0);
  for (std::size_t e = 0; e < n; ++e) sums[e] = offsets[e + 1] - offsets[e];
  for (std::size_t first = 0; first < logits.size(); first += n) {
    const Vec of_token(logits.begin() + static_cast<std::ptrdiff_t>(first),
                       logits.begin() + static_cast<std::ptrdiff_t>(first + n));
    const Vec shares = router_scores(of_token, kernels::RouterRule::Score::softmax);
    for (std::size_t e = 0; e < n; ++e) sums[n + e] += shares[e];
    const double log = of_token[0] - std::log(shares[0]);
    sums[2 * n] += log * log;
  }
  return sums;
}
/// The losses of routers from the sums over so many rows of all layers.
inline Vec router_losses(const Vec& sums, double rows) {
  const std::size_t n = sums.size() / 2;
  double aux = 0;
  for (std::size_t e = 0; e < n; ++e) aux += static_cast<double>(n) * (sums[e] / rows) * (sums[n + e] / rows);
  return {aux, sums[2 * n] / rows};
}

}  // namespace strata::test::reference
