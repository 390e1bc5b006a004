// Figures as people write them.
#include <strata/runtime/figure_text.h>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(FigureTextTest, AFigureHasThreeDigitsAndAPrefix) {
  EXPECT_EQ(figure_text(33554432, "B"), "32 MiB");
  EXPECT_EQ(figure_text(5.7542 * (1 << 20), "B"), "5.75 MiB");
  EXPECT_EQ(figure_text(1000, "B"), "1000 B");
  EXPECT_EQ(figure_text(0, "B"), "0 B");
  EXPECT_EQ(figure_text(0.0125, "s"), "12.5 ms");
  EXPECT_EQ(figure_text(3.2e-5, "s"), "32 us");
  EXPECT_EQ(figure_text(0, "s"), "0 s");
  EXPECT_EQ(figure_text(45123, ""), "45.1 k");
  EXPECT_EQ(figure_text(-2.5e9, ""), "-2.5 G");
}

TEST(FigureTextTest, ACountBelowTenThousandHasFourDigits) {
  EXPECT_EQ(figure_text(4.481243, ""), "4.481");
  EXPECT_EQ(figure_text(0.693147, ""), "0.6931");
  EXPECT_EQ(figure_text(5120.4, ""), "5120");
}

TEST(FigureTextTest, WhatRoundsUpToAPrefixHasIt) {
  EXPECT_EQ(figure_text(999.9e-6, "s"), "1 ms");
  EXPECT_EQ(figure_text(999.4e-6, "s"), "999 us");
  EXPECT_EQ(figure_text((1 << 20) - 100, "B"), "1 MiB");
}

TEST(FigureTextTest, WhatIsNoNumberIsADash) {
  EXPECT_EQ(figure_text(std::nan(""), "s"), "-");
  EXPECT_EQ(figure_text(std::numeric_limits<double>::infinity(), ""), "-");
}

}  // namespace
}  // namespace strata
