#pragma once

#include <cmath>
#include <vector>

#include "support/op_test.h"

namespace strata::test {

/// A loss, its statistics and its gradient in f64, and what the ops compute.
struct LossReference {
  explicit LossReference(std::size_t n_stats) : stats(n_stats) {}
  double loss = 0;
  std::vector<double> stats, gradient;
};
struct LossResults {
  float loss;
  std::vector<float> stats, gradient;
};

inline void expect_follows(const LossResults& got, const LossReference& want, double of_gradient) {
  EXPECT_NEAR(got.loss, want.loss, 1e-5 * (std::abs(want.loss) + 1e-3));
  ASSERT_EQ(got.stats.size(), want.stats.size());
  for (std::size_t k = 0; k < want.stats.size(); ++k)
    EXPECT_NEAR(got.stats[k], want.stats[k], 1e-5 * (std::abs(want.stats[k]) + 1)) << k;
  EXPECT_LE(relative_error(got.gradient, want.gradient), of_gradient);
}
inline void expect_same_bits(const LossResults& a, const LossResults& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.stats, b.stats);
  EXPECT_EQ(differing_bits(a.gradient, b.gradient), 0u);
}
inline void expect_nothing(const LossResults& got) {
  EXPECT_EQ(got.loss, 0.0f);
  EXPECT_EQ(got.stats, std::vector<float>(got.stats.size(), 0.0f));
  EXPECT_EQ(got.gradient, std::vector<float>(got.gradient.size(), 0.0f));
}

/// Every seventh value replaced.
inline std::vector<float> masked(std::vector<float> values, float by) {
  for (std::size_t t = 3; t < values.size(); t += 7) values[t] = by;
  return values;
}

}  // namespace strata::test
