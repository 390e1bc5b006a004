#include <strata/kernels/align/policy_loss.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/align/loss_results.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// Operands of n tokens, of which every seventh has the weight 0 and garbage.
struct PolicyProblem {
  explicit PolicyProblem(std::int64_t n, double spread = 0.6)
      : log_probs({n}, Values(1).floats(n, spread, -2.0)),
        old({n}, Values(2).floats(n, spread, -2.0)),
        advantages({n}, Values(3).floats(n, 2.0)),
        weights({n}, test::masked(Values(4).floats(n, 0.5, 0.6), 0.0f)),
        ref({n}, Values(5).floats(n, spread, -2.0)),
        divisor({1}, {3.5f}) {
    for (Tensor* each : {&log_probs, &old, &advantages, &ref})
      *each = Tensor({n}, test::masked(each->values(), std::nanf("")));
  }
  PolicyTokens tokens(bool has_ref = true) {
    return {log_probs.view(), old.view(), advantages.view(), weights.view(),
            has_ref ? ref.view() : TensorView{}};
  }
  test::LossReference reference(const PolicyLossOptions& o, bool has_ref = true) const {
    test::LossReference r(6);
    const auto lp = log_probs.values(), ol = old.values(), ad = advantages.values(), we = weights.values(),
               re = ref.values();
    const double divisor_of = static_cast<double>(divisor.values()[0]), coef = static_cast<double>(o.kl_coef);
    for (std::size_t t = 0; t < lp.size(); ++t) {
      r.gradient.push_back(0);
      const auto w = static_cast<double>(we[t]), a = static_cast<double>(ad[t]);
      if (w == 0) continue;
      const double d = static_cast<double>(lp[t]) - static_cast<double>(ol[t]), ratio = std::exp(d);
      const double bounded =
          std::clamp(ratio, 1 - static_cast<double>(o.clip_low), 1 + static_cast<double>(o.clip_high));
      const bool clipped = bounded * a < ratio * a;
      const double to_ref = has_ref ? static_cast<double>(re[t]) - static_cast<double>(lp[t]) : 0;
      const bool k1 = o.kl == KlEstimator::k1;
      const double kl = k1 ? -to_ref : std::expm1(to_ref) - to_ref, slope = !has_ref ? 0
                                                                            : k1     ? 1
                                                                                     : -std::expm1(to_ref);
      r.loss += w * (coef * kl - std::min(ratio * a, bounded * a)) / divisor_of;
      r.gradient.back() = w * (coef * slope - (clipped ? 0 : ratio * a)) / divisor_of;
      r.stats[0] += w;
      r.stats[1] += clipped ? w : 0;
      r.stats[2] += w * (std::expm1(d) - d);
      r.stats[3] += w * kl;
      r.stats[4] += w * ratio;
      r.stats[5] = std::max(r.stats[5], ratio);
    }
    return r;
  }
  Tensor log_probs, old, advantages, weights, ref, divisor;
};

test::LossResults run(PolicyProblem& p, const PolicyLossOptions& options, bool has_ref = true,
                      int threads = 2) {
  Tensor loss = Tensor::unwritten({1}), stats = Tensor::unwritten({6}),
         gradient = Tensor::unwritten(p.log_probs.view().shape);
  const auto pool = test::pool(threads);
  policy_loss_host({p.tokens(has_ref), p.divisor.view(), loss.view(), stats.view(), options}, *pool);
  policy_loss_backward_host({p.tokens(has_ref), p.divisor.view(), gradient.view(), options}, *pool);
  return {loss.values()[0], stats.values(), gradient.values()};
}

TEST(PolicyLossTest, FollowsTheF64Reference) {
  for (const std::int64_t n : {1, 5, 511, 4099})
    for (const KlEstimator kl : {KlEstimator::k1, KlEstimator::k3})
      for (const float coef : {0.0f, 0.3f}) {
        SCOPED_TRACE(n);
        const PolicyLossOptions options = {.clip_low = 0.2f, .clip_high = 0.28f, .kl_coef = coef, .kl = kl};
        PolicyProblem p(n);
        test::expect_follows(run(p, options), p.reference(options), 5e-6);
      }
}

// The ratio to the policy that sampled is no factor of it, even where that is 1: its slope would then be
// ln 2.
TEST(PolicyLossTest, ThePenaltyHasTheSlopeOfItsEstimateAlone) {
  PolicyProblem p(1);
  for (Tensor* const each : {&p.log_probs, &p.old}) *each = Tensor({1}, {-1.0f});
  p.ref = Tensor({1}, {-1.0f - std::log(2.0f)});
  p.advantages = Tensor({1}, {0.0f});
  p.weights = p.divisor = Tensor({1}, {1.0f});
  const test::LossResults got = run(p, {.kl_coef = 1.0f, .kl = KlEstimator::k3});
  EXPECT_NEAR(got.gradient[0], 0.5f, 1e-6f);
}

TEST(PolicyLossTest, NeedsNoReferenceWithoutAKlPenalty) {
  PolicyProblem p(300);
  test::expect_follows(run(p, {}, false), p.reference({}, false), 5e-6);
}

TEST(PolicyLossTest, AnInfiniteClipIsNone) {
  const float infinity = std::numeric_limits<float>::infinity();
  const PolicyLossOptions options = {.clip_low = infinity, .clip_high = infinity};
  PolicyProblem p(300);
  const test::LossResults got = run(p, options);
  test::expect_follows(got, p.reference(options), 5e-6);
  EXPECT_EQ(got.stats[1], 0.0f);
}

// The estimates are differences of numbers near 1, which f32 would cancel.
TEST(PolicyLossTest, TinyDivergencesAreAccurate) {
  const PolicyLossOptions options = {.kl_coef = 100.0f, .kl = KlEstimator::k3};
  PolicyProblem p(1000, 1e-3);
  p.advantages = Tensor({1000}, std::vector<float>(1000, 0.0f));
  test::expect_follows(run(p, options), p.reference(options), 5e-6);
}

TEST(PolicyLossTest, EqualLogProbabilitiesHaveARatioOfExactlyOne) {
  PolicyProblem p(1000);
  p.old = p.log_probs;
  const test::LossResults got = run(p, {});
  EXPECT_EQ(got.stats[0], got.stats[4]);
  EXPECT_EQ(got.stats[5], 1.0f);
  EXPECT_EQ(got.stats[1], 0.0f);
  EXPECT_EQ(got.stats[2], 0.0f);
}

TEST(PolicyLossTest, HugeRatiosStayFiniteAndAreClippedOnlyOnTheirSide) {
  PolicyProblem p(4);
  p.log_probs = Tensor({4}, {0, 0, -900, -900});
  p.old = Tensor({4}, {-900, -900, 0, 0});
  p.ref = Tensor({4}, {900, -900, 900, -900});
  p.advantages = Tensor({4}, {1, -1, 1, -1});
  p.weights = Tensor({4}, {1, 1, 1, 1});
  const test::LossResults got = run(p, {.kl_coef = 0.1f});
  EXPECT_TRUE(std::isfinite(got.loss));
  for (const float each : test::joined({got.stats, got.gradient})) EXPECT_TRUE(std::isfinite(each));
  EXPECT_EQ(got.stats[1], 2.0f);
  const test::LossResults plain = run(p, {});
  EXPECT_EQ(plain.gradient[0], 0.0f);
  EXPECT_GT(plain.gradient[1], 1e30f);
  EXPECT_EQ(plain.gradient[3], 0.0f);
}

TEST(PolicyLossTest, AnAdvantageOfZeroGivesNothingWhateverTheRatio) {
  PolicyProblem p(2);
  p.log_probs = Tensor({2}, {900, 0});
  p.old = Tensor({2}, {0, 900});
  p.advantages = Tensor({2}, {0, 0});
  p.weights = Tensor({2}, {1, 1});
  const test::LossResults got = run(p, {});
  EXPECT_EQ(got.loss, 0.0f);
  EXPECT_EQ(got.gradient, std::vector<float>(2, 0.0f));
}

TEST(PolicyLossTest, WithoutWeightsEverythingIsZero) {
  PolicyProblem p(50);
  p.weights = Tensor({50}, std::vector<float>(50, 0.0f));
  const test::LossResults got = run(p, {.kl_coef = 1});
  test::expect_nothing(got);
}

TEST(PolicyLossTest, AnyThreadCountGivesTheSameBits) {
  PolicyProblem p(100003);
  const test::LossResults one = run(p, {.kl_coef = 0.1f}, true, 1);
  for (const int threads : {2, 3}) {
    test::expect_same_bits(run(p, {.kl_coef = 0.1f}, true, threads), one);
  }
}

TEST(PolicyLossTest, RefusesInconsistentOperandsAndOptions) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  PolicyProblem p(5);
  Tensor loss = Tensor::unwritten({1}), stats = Tensor::unwritten({6}), short_stats = Tensor::unwritten({4});
  const auto message = [&](bool has_ref, Tensor& into, const PolicyLossOptions& options) {
    return std::string(
        policy_loss_async(backend, stream,
                          {p.tokens(has_ref), p.divisor.view(), loss.view(), into.view(), options})
            .message());
  };
  EXPECT_EQ(message(true, stats, {.kl_coef = 1}), "ok");
  EXPECT_NE(message(false, stats, {.kl_coef = 1}).find("there are no ref_log_probs"), std::string::npos);
  EXPECT_NE(message(true, stats, {.clip_low = -1}).find("clip_low is -1"), std::string::npos);
  EXPECT_NE(message(true, short_stats, {}).find("stats is f32 [4]"), std::string::npos);
}

}  // namespace
}  // namespace strata::kernels
