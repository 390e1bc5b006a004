#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "engine/execute/first_gradients.h"
#include "engine/execute/forward_reference.h"

namespace strata::test {

using DoubleTensors = std::map<std::string, reference::Vec>;

inline DoubleTensors in_double(const StateTensors& states) {
  DoubleTensors tensors;
  for (const auto& [name, values] : states) tensors[name] = reference::Vec(values.begin(), values.end());
  return tensors;
}

/// The forward of `program` in double, over the first of CountingBatches.
inline ForwardReference forward_of_first_batch(const Program& program) {
  reference::Ints tokens(48), targets(48), keys(2 * 48);
  CountingBatches batches(tiny_config().vocab);
  const std::array<BatchInput, 3> inputs = {{{"tokens", tokens}, {"targets", targets}, {kDropoutKeys, keys}}};
  must(batches.fill(0, {inputs}));
  return {program, tokens, targets, {}, keys};
}

/// Expects that some elements of every gradient are the central differences of the loss in double.
inline void expect_central_differences(const ForwardReference& forward, const FirstGradients& first,
                                       double bar = 2e-5) {
  constexpr double kStep = 1e-5;
  DoubleTensors params = in_double(first.params);
  forward.loss(params);  // whose constants are those of the gradients
  for (const auto& [name, gradient] : in_double(first.gradients)) {
    const Rng rng(std::hash<std::string>{}(name), 9);
    double error = 0, norm = 0;
    for (std::uint64_t draw = 0; draw < 12; ++draw) {
      const std::size_t i = rng.below(draw, gradient.size());
      const double at = params[name][i];
      params[name][i] = at + kStep;
      const double above = forward.loss(params);
      params[name][i] = at - kStep;
      const double below = forward.loss(params);
      params[name][i] = at;
      const double want = (above - below) / (2 * kStep);
      error += (gradient[i] - want) * (gradient[i] - want);
      norm += want * want;
    }
    EXPECT_GT(norm, 0) << name;
    EXPECT_LE(std::sqrt(error / norm), bar) << name;
  }
}

}  // namespace strata::test
