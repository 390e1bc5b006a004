#include <strata/kernels/align/pair_loss.h>

#include <cmath>

#include "kernels/align/loss_results.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

double softplus(double z) { return z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z)); }
double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

/// Operands of n pairs, of which every fifth has the weight 0 and garbage.
struct PairProblem {
  explicit PairProblem(std::int64_t n, double size = 20)
      : scores({2 * n}, Values(1).floats(2 * n, size, -30)),
        ref({2 * n}, Values(2).floats(2 * n, size, -30)),
        weights({n}, Values(3).floats(n, 0.5, 0.6)),
        margins({n}, Values(4).floats(n)),
        divisor({1}, {3.5f}) {
    std::vector<float> w = weights.values(), s = scores.values();
    for (std::size_t i = 3; i < w.size(); i += 5) w[i] = 0, s[2 * i] = std::nanf("");
    weights = Tensor({n}, w);
    scores = Tensor({2 * n}, s);
  }
  ScorePairs pairs() {
    return {scores.view(), has_ref ? ref.view() : TensorView{}, weights.view(),
            has_margins ? margins.view() : TensorView{}};
  }
  test::LossReference reference(const PairLossOptions& o) const {
    test::LossReference r(4);
    const auto sc = test::widen(scores.values()), re = test::widen(ref.values()),
               we = test::widen(weights.values()), ma = test::widen(margins.values());
    const auto beta = static_cast<double>(o.beta), flipped = static_cast<double>(o.label_smoothing);
    for (std::size_t i = 0; i < we.size(); ++i) {
      r.gradient.insert(r.gradient.end(), {0, 0});
      if (we[i] == 0) continue;
      const double chosen = sc[2 * i] - (has_ref ? re[2 * i] : 0),
                   rejected = sc[2 * i + 1] - (has_ref ? re[2 * i + 1] : 0), h = chosen - rejected,
                   z = beta * h - (has_margins ? ma[i] : 0), e = h - 1 / (2 * beta);
      const bool ipo = o.kind == PairLossKind::ipo;
      const double loss = ipo ? e * e : (1 - flipped) * softplus(-z) + flipped * softplus(z);
      const double slope = ipo ? 2 * e : beta * (flipped * sigmoid(z) - (1 - flipped) * sigmoid(-z));
      r.loss += we[i] * loss / 3.5;
      r.gradient[2 * i] = we[i] * slope / 3.5;
      r.gradient[2 * i + 1] = -r.gradient[2 * i];
      r.stats[0] += we[i];
      r.stats[1] += h > 0 ? we[i] : 0;
      r.stats[2] += we[i] * beta * chosen;
      r.stats[3] += we[i] * beta * rejected;
    }
    return r;
  }
  bool has_ref = true, has_margins = false;
  Tensor scores, ref, weights, margins, divisor;
};

test::LossResults run(PairProblem& p, const PairLossOptions& options, int threads = 2) {
  Tensor loss = Tensor::unwritten({1}), stats = Tensor::unwritten({4}),
         gradient = Tensor::unwritten(p.scores.view().shape);
  const auto pool = test::pool(threads);
  pair_loss_host({p.pairs(), p.divisor.view(), loss.view(), stats.view(), options}, *pool);
  pair_loss_backward_host({p.pairs(), p.divisor.view(), gradient.view(), options}, *pool);
  return {loss.values()[0], stats.values(), gradient.values()};
}

TEST(PairLossTest, RewardModelsHaveMarginsAndNoReference) {
  for (const std::int64_t n : {1, 5, 700}) {
    PairProblem p(n, 3);
    p.has_ref = false;
    p.has_margins = true;
    test::expect_follows(run(p, {}), p.reference({}), 2e-5);
  }
}

TEST(PairLossTest, DpoFollowsTheF64Reference) {
  for (const std::int64_t n : {1, 5, 700})
    for (const float smoothing : {0.0f, 0.1f}) {
      const PairLossOptions options = {.beta = 0.1f, .label_smoothing = smoothing};
      PairProblem p(n);
      test::expect_follows(run(p, options), p.reference(options), 2e-5);
    }
}

TEST(PairLossTest, IpoFollowsTheF64Reference) {
  for (const std::int64_t n : {1, 5, 700}) {
    const PairLossOptions options = {.kind = PairLossKind::ipo, .beta = 0.1f};
    PairProblem p(n);
    test::expect_follows(run(p, options), p.reference(options), 2e-5);
  }
}

TEST(PairLossTest, LargeDifferencesAreStable) {
  PairProblem p(2);
  p.has_ref = false;
  p.scores = Tensor({4}, {2000, 0, 0, 2000});
  p.weights = Tensor({2}, {1, 1});
  p.divisor = Tensor({1}, {1});
  const test::LossResults got = run(p, {});
  EXPECT_EQ(got.loss, 2000.0f);
  EXPECT_EQ(got.gradient[2], -1.0f);
  EXPECT_NEAR(got.gradient[0], 0, 1e-30);
  const test::LossResults smoothed = run(p, {.label_smoothing = 0.5f});
  EXPECT_EQ(smoothed.loss, 2000.0f);
  EXPECT_EQ(smoothed.gradient, (std::vector<float>{0.5f, -0.5f, -0.5f, 0.5f}));
}

TEST(PairLossTest, ATieIsNoCorrectPair) {
  PairProblem p(3);
  p.has_ref = false;
  p.scores = Tensor({6}, {1, 1, 2, 1, 1, 2});
  p.weights = Tensor({3}, {1, 2, 4});
  EXPECT_EQ(run(p, {}).stats[1], 2.0f);
}

TEST(PairLossTest, WithoutWeightsEverythingIsZero) {
  PairProblem p(50);
  p.weights = Tensor({50}, std::vector<float>(50, 0.0f));
  const test::LossResults got = run(p, {});
  test::expect_nothing(got);
}

TEST(PairLossTest, AnyThreadCountGivesTheSameBits) {
  PairProblem p(40003);
  const test::LossResults one = run(p, {.beta = 0.1f}, 1), three = run(p, {.beta = 0.1f}, 3);
  test::expect_same_bits(three, one);
}

TEST(PairLossTest, RefusesInconsistentOperandsAndOptions) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  PairProblem p(5);
  Tensor loss = Tensor::unwritten({1}), stats = Tensor::unwritten({4});
  const auto message = [&](const PairLossOptions& options) {
    return std::string(
        pair_loss_async(backend, stream, {p.pairs(), p.divisor.view(), loss.view(), stats.view(), options})
            .message());
  };
  EXPECT_EQ(message({}), "ok");
  EXPECT_NE(message({.beta = 0}).find("beta is 0"), std::string::npos);
  EXPECT_NE(message({.label_smoothing = 1.5f}).find("label_smoothing is 1.5"), std::string::npos);
  p.has_margins = true;
  EXPECT_NE(message({.kind = PairLossKind::ipo}).find("ipo has neither margins"), std::string::npos);
}

}  // namespace
}  // namespace strata::kernels
