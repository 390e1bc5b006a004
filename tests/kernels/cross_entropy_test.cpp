#include <strata/kernels/cross_entropy.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using Size = std::pair<std::int64_t, std::int64_t>;

struct Problem {
  explicit Problem(Size size)
      : rows(size.first),
        vocab(size.second),
        logits(test::Values(1).floats(rows * vocab, 8.0)),
        targets(test::Values(2).below(rows, vocab)) {
    for (std::size_t t = 2; t < targets.size(); t += 5) targets[t] = -1;
  }
  std::int64_t rows, vocab;
  std::vector<float> logits;
  std::vector<std::int32_t> targets;
  test::reference::CrossEntropy forward() const {
    return test::reference::cross_entropy_forward(test::widen(logits), targets,
                                                  static_cast<std::size_t>(vocab));
  }
};

class CrossEntropyTest : public ::testing::TestWithParam<Size> {};

TEST_P(CrossEntropyTest, ForwardFollowsTheF64Reference) {
  Problem p(GetParam());
  Tensor logits({p.rows, p.vocab}, p.logits), losses = Tensor::unwritten({p.rows}),
                                              lse = Tensor::unwritten({p.rows});
  Tensor mean = Tensor::unwritten({1});
  cross_entropy_forward_host({logits.view(), test::view(p.targets), losses.view(), lse.view(), mean.view()},
                             *test::pool());
  const auto want = p.forward();
  EXPECT_LE(test::relative_error(lse.values(), want.lse), 1e-6);
  EXPECT_LE(test::relative_error(losses.values(), want.losses), 1e-6);
  EXPECT_NEAR(mean.values()[0], want.mean_loss, 1e-6 * std::abs(want.mean_loss));
}

TEST_P(CrossEntropyTest, BackwardInPlaceFollowsTheF64Reference) {
  Problem p(GetParam());
  const auto forward = p.forward();
  Tensor logits({p.rows, p.vocab}, p.logits), lse({p.rows}, {forward.lse.begin(), forward.lse.end()});
  cross_entropy_backward_host({logits.view(), test::view(p.targets), lse.view(), logits.view(), 0.125f},
                              *test::pool());
  const auto want = test::reference::cross_entropy_backward(test::widen(p.logits), p.targets, forward.lse,
                                                            static_cast<std::size_t>(p.vocab), 0.125);
  EXPECT_LE(test::relative_error(logits.values(), want), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropyTest,
                         ::testing::Values(Size{0, 4}, Size{1, 1}, Size{3, 17}, Size{70, 256},
                                           Size{5, 50257}));

TEST(CrossEntropyTest, TheGradientOfTheMeanDividesByTheTargetsThatAreNotIgnored) {
  std::vector<std::int32_t> targets = {0, -1, 1, -1};
  Tensor logits({4, 2}, std::vector<float>(8, 0.0f)), lse({4}, std::vector<float>(4, std::log(2.0f)));
  Tensor d = Tensor::unwritten({4, 2});
  cross_entropy_backward_host({logits.view(), test::view(targets), lse.view(), d.view(), 1.0f, true},
                              *test::pool());
  const std::vector<float> want = {-0.25f, 0.25f, 0.0f, 0.0f, 0.25f, -0.25f, 0.0f, 0.0f};
  EXPECT_LE(test::relative_error(d.values(), want), 1e-6);
}

TEST(CrossEntropyTest, WithAllTargetsIgnoredTheMeanIsZero) {
  std::vector<std::int32_t> targets = {-1, -1};
  Tensor logits({2, 3}, std::vector<float>(6, 1.0f)), losses = Tensor::unwritten({2}), lse = losses,
                                                      mean = Tensor::unwritten({1});
  cross_entropy_forward_host({logits.view(), test::view(targets), losses.view(), lse.view(), mean.view()},
                             *test::pool());
  EXPECT_EQ(mean.values()[0], 0.0f);
  EXPECT_EQ(losses.values(), (std::vector<float>{0.0f, 0.0f}));
}

TEST(CrossEntropyTest, HugeLogitsDoNotOverflowAndANaNReachesTheLoss) {
  std::vector<std::int32_t> targets = {0, 1};
  Tensor logits({2, 2}, {1e30f, -1e30f, std::nanf(""), 0.0f}), losses = Tensor::unwritten({2}), lse = losses;
  Tensor mean = Tensor::unwritten({1});
  cross_entropy_forward_host({logits.view(), test::view(targets), losses.view(), lse.view(), mean.view()},
                             *test::pool());
  EXPECT_EQ(losses.values()[0], 0.0f);
  EXPECT_TRUE(std::isnan(losses.values()[1]));
  EXPECT_TRUE(std::isnan(mean.values()[0]));
}

}  // namespace
}  // namespace strata::kernels
