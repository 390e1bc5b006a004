#include <strata/simd/math/elementary.h>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace strata::simd {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ElementaryTest, ExpIsWithinTwoUlpsWhereNormal) {
  double worst = 0.0;
  for (float x = -87.3f; x < 88.7f; x += 0.00037f)
    worst =
        std::max(worst, std::abs(static_cast<double>(exp_of(x)) / std::exp(static_cast<double>(x)) - 1.0));
  EXPECT_LE(worst, 2.0 * 0x1p-23);
}

TEST(ElementaryTest, ExpIsWithinOneStepWhereSubnormal) {
  for (float x = -104.5f; x < -87.3f; x += 0.01f)
    EXPECT_NEAR(exp_of(x), std::exp(static_cast<double>(x)), 1.5 * 0x1p-149) << x;
}

TEST(ElementaryTest, ExpHasTheLimitsOfIeee) {
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(kInf), kInf);
  EXPECT_EQ(exp_of(89.0f), kInf);
  EXPECT_EQ(exp_of(-kInf), 0.0f);
  EXPECT_EQ(exp_of(-1e30f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST(ElementaryTest, LogIsWithinAFewUlpsOfF64) {
  double worst = 0.0;
  for (double x = 1e-30; x < 1e30; x *= 1.0137)
    worst = std::max(worst, std::abs(log_of(x) - std::log(x)) / std::max(1.0, std::abs(std::log(x))));
  EXPECT_LE(worst, 1e-15);
  EXPECT_EQ(log_of(1.0), 0.0);
  EXPECT_TRUE(std::isnan(log_of(std::nan(""))));
  EXPECT_TRUE(std::isnan(log_of(0.0)));
}

TEST(ElementaryTest, SigmoidAndItsComplementKeepTheirRelativeAccuracy) {
  for (double y = -80.0; y <= 80.0; y += 0.093) {
    const auto s = sigmoid_of(static_cast<float>(y));
    const auto exact = static_cast<double>(static_cast<float>(y));
    EXPECT_NEAR(s.value * (1.0 + std::exp(-exact)), 1.0, 4e-7) << y;
    EXPECT_NEAR(s.complement * (1.0 + std::exp(exact)), 1.0, 4e-7) << y;
  }
}

TEST(ElementaryTest, TanhIsExactAboutZeroAndWithinTwoUlpsOfOneBeyond) {
  for (double x = 1e-6; x < 0.625; x *= 1.0013)
    for (const float at : {static_cast<float>(x), static_cast<float>(-x)})
      EXPECT_NEAR(tanh_of(at) / std::tanh(static_cast<double>(at)), 1.0, 3 * 0x1p-23) << at;
  for (float x = 0.6f; x < 100.0f; x += 0.0037f) {
    EXPECT_NEAR(tanh_of(x), std::tanh(static_cast<double>(x)), 2e-7) << x;
    EXPECT_EQ(tanh_of(-x), -tanh_of(x)) << x;
  }
  EXPECT_EQ(tanh_of(kInf), 1.0f);
  EXPECT_EQ(tanh_of(-kInf), -1.0f);
  EXPECT_EQ(tanh_of(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(tanh_of(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace strata::simd
