#include <strata/kernels/rope.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::widen;
using test::reference::Ints;
using test::reference::Vec;

Vec inv_freq(std::int64_t rotary_dim, double theta = 10000.0) {
  Vec out;
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i)
    out.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim)));
  return out;
}

struct Shape4 {
  std::int64_t rows, heads, d, rotary_dim;
  bool interleaved;
};
class RopeTest : public ::testing::TestWithParam<Shape4> {
 protected:
  const Shape4 s = GetParam();
  const std::int64_t width = (s.heads + 1) * s.d;  // the last head is not rotated
  const std::vector<float> x = test::Values(1).floats(s.rows * width);
  Ints positions = test::Values(2).below(s.rows, 50);
  Tensor table = make_table();
  Tensor make_table() const {
    Tensor t = Tensor::unwritten({50, s.rotary_dim});
    rope_table_host({t.view(), {}}, *test::pool());
    return t;
  }
};

TEST_P(RopeTest, RotatesEveryPairByItsAngle) {
  Tensor in({s.rows, width}, x), y = Tensor::unwritten({s.rows, width});
  rope_host({in.view(), test::view(positions), table.view(), y.view(), s.heads, s.d, s.interleaved, false},
            *test::pool());
  const Vec want = test::reference::rope_forward(widen(x), positions, inv_freq(s.rotary_dim),
                                                 static_cast<std::size_t>(s.heads),
                                                 static_cast<std::size_t>(s.d), s.interleaved);
  EXPECT_LE(test::relative_error(y.values(), want), 1e-6);
}

TEST_P(RopeTest, TheInverseInPlaceRotatesBack) {
  Tensor y({s.rows, width}, x);
  for (const bool inverse : {false, true})
    rope_host({y.view(), test::view(positions), table.view(), y.view(), s.heads, s.d, s.interleaved, inverse},
              *test::pool());
  EXPECT_LE(test::relative_error(y.values(), widen(x)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeTest,
                         ::testing::Values(Shape4{0, 1, 4, 4, false}, Shape4{3, 2, 4, 4, false},
                                           Shape4{7, 3, 6, 4, false}, Shape4{7, 3, 6, 4, true},
                                           Shape4{70, 2, 80, 80, false}, Shape4{70, 2, 80, 40, true}));

TEST(RopeTableTest, LinearScalingStretchesPositions) {
  Tensor plain = Tensor::unwritten({8, 4}), stretched = Tensor::unwritten({8, 4});
  rope_table_host({plain.view(), {}}, *test::pool());
  RopeFrequencies half;
  half.scaling = RopeFrequencies::Scaling::linear;
  half.factor = 2.0f;
  rope_table_host({stretched.view(), half}, *test::pool());
  for (std::size_t p = 0; p < 4; ++p)
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(stretched.values()[2 * p * 4 + i], plain.values()[p * 4 + i], 1e-6);
}

TEST(RopeTableTest, Llama3ScalingKeepsShortWavesDividesLongOnesAndBlendsBetween) {
  RopeFrequencies f{RopeFrequencies::Scaling::llama3, 500000.0f, 8.0f, 1.0f, 4.0f, 8192.0f};
  Tensor table = Tensor::unwritten({2, 128});
  rope_table_host({table.view(), f}, *test::pool());
  const Vec plain = inv_freq(128, 500000.0);
  int unscaled = 0, divided = 0, blended = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const double got = std::asin(table.values()[128 + 64 + i]);  // the angle at position 1
    const double wave = 2 * std::numbers::pi / plain[i];
    double want = plain[i] / 8.0;
    if (wave < 8192.0 / 4) {
      want = plain[i];
      ++unscaled;
    } else if (wave > 8192.0) {
      ++divided;
    } else {
      const double blend = (8192.0 / wave - 1.0) / 3.0;
      want = (1.0 - blend) * plain[i] / 8.0 + blend * plain[i];
      ++blended;
    }
    EXPECT_NEAR(got / want, 1.0, i == 0 ? 1e-4 : 1e-5) << i;
  }
  EXPECT_GT(unscaled, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(blended, 0);
}

// Peng et al. 2023 (arXiv 2309.00071), section 3.2, with the indices of the ramp rounded outwards as in the
// authors' code.
TEST(RopeTableTest, YarnKeepsHighFrequenciesDividesLowOnesAndScalesAll) {
  RopeFrequencies f;
  f.scaling = RopeFrequencies::Scaling::yarn;
  f.theta = 10000.0f;
  f.factor = 4.0f;
  f.original_positions = 4096.0f;
  f.attention_factor = 1.125f;
  const Vec plain = inv_freq(128, 10000.0);
  const auto index = [](double turns) {
    return 128 * std::log(4096.0 / (turns * 2 * std::numbers::pi)) / (2 * std::log(10000.0));
  };
  for (const bool truncate : {true, false}) {
    f.truncate = truncate;
    Tensor table = Tensor::unwritten({2, 128});
    rope_table_host({table.view(), f}, *test::pool());
    const double low = truncate ? std::floor(index(32)) : index(32),
                 high = truncate ? std::ceil(index(1)) : index(1);
    ASSERT_GT(low, 5);
    ASSERT_LT(high, 60);
    for (std::size_t i = 0; i < 64; ++i) {
      const double sine = table.values()[128 + 64 + i] / 1.125;
      const double share = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      const double want = plain[i] * (1 - share) + plain[i] / 4 * share;
      EXPECT_NEAR(std::asin(sine) / want, 1.0, i == 0 ? 1e-4 : 1e-5) << i;
    }
    EXPECT_FLOAT_EQ(table.values()[0], 1.125f);
  }
}

TEST(RopeTableTest, TheLastPairsStandStillIfAsked) {
  Tensor plain = Tensor::unwritten({9, 16}), some = Tensor::unwritten({9, 16});
  rope_table_host({plain.view(), {}}, *test::pool());
  rope_table_host({some.view(), {.still = 5}}, *test::pool());
  for (std::size_t p = 0; p < 9; ++p)
    for (std::size_t i = 0; i < 16; ++i) {
      const float still = i < 8 ? 1.0f : 0.0f;
      EXPECT_EQ(some.values()[p * 16 + i], i % 8 < 3 ? plain.values()[p * 16 + i] : still) << p << ", " << i;
    }
}

TEST(PositionsTest, CountFromTheRowOrFromTheDocument) {
  Ints rows(6), documents(6), starts = {0, 0, 2, 0, 1, 1};
  positions_host({{}, test::view(rows), 3}, *test::pool());
  EXPECT_EQ(rows, (Ints{0, 1, 2, 0, 1, 2}));
  positions_host({test::view(starts), test::view(documents), 3}, *test::pool());
  EXPECT_EQ(documents, (Ints{0, 1, 0, 0, 0, 1}));
}

}  // namespace
}  // namespace strata::kernels
