#include <strata/kernels/align/value_loss.h>

#include <algorithm>
#include <cmath>

#include "kernels/align/loss_results.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// Operands of n tokens, of which every seventh has the weight 0 and garbage.
struct ValueProblem {
  explicit ValueProblem(std::int64_t n)
      : values({n}, test::masked(Values(1).floats(n), std::nanf(""))),
        old({n}, test::masked(Values(2).floats(n), std::nanf(""))),
        returns({n}, test::masked(Values(3).floats(n), std::nanf(""))),
        weights({n}, test::masked(Values(4).floats(n, 0.5, 0.6), 0.0f)),
        divisor({1}, {3.5f}) {}
  ValueTokens tokens(bool has_old) {
    return {values.view(), has_old ? old.view() : TensorView{}, returns.view(), weights.view()};
  }
  test::LossReference reference(double clip) const {
    test::LossReference r(4);
    const auto va = values.values(), ol = old.values(), re = returns.values(), we = weights.values();
    for (std::size_t t = 0; t < va.size(); ++t) {
      r.gradient.push_back(0);
      const auto w = static_cast<double>(we[t]), v = static_cast<double>(va[t]),
                 target = static_cast<double>(re[t]), before = static_cast<double>(ol[t]);
      if (w == 0) continue;
      const double e = v - target, held = clip > 0 ? std::clamp(v, before - clip, before + clip) - target : e;
      const bool clipped = held * held > e * e;
      r.loss += w * 0.5 * std::max(e * e, held * held) / 3.5;
      r.gradient.back() = clipped ? 0 : w * e / 3.5;
      r.stats[0] += w;
      r.stats[1] += clipped ? w : 0;
      r.stats[2] += w * e * e;
      r.stats[3] += w * v;
    }
    return r;
  }
  Tensor values, old, returns, weights, divisor;
};

test::LossResults run(ValueProblem& p, float clip, int threads = 2) {
  Tensor loss = Tensor::unwritten({1}), stats = Tensor::unwritten({4}),
         gradient = Tensor::unwritten(p.values.view().shape);
  const auto pool = test::pool(threads);
  value_loss_host({p.tokens(clip > 0), p.divisor.view(), loss.view(), stats.view(), {clip}}, *pool);
  value_loss_backward_host({p.tokens(clip > 0), p.divisor.view(), gradient.view(), {clip}}, *pool);
  return {loss.values()[0], stats.values(), gradient.values()};
}

TEST(ValueLossTest, FollowsTheF64Reference) {
  for (const std::int64_t n : {1, 5, 511, 4099})
    for (const float clip : {0.0f, 0.2f}) {
      SCOPED_TRACE(n);
      ValueProblem p(n);
      const test::LossResults got = run(p, clip);
      const test::LossReference want = p.reference(static_cast<double>(clip));
      test::expect_follows(got, want, 2e-6);
    }
}

TEST(ValueLossTest, AValueThatMovedTooFarTowardsTheReturnHasNoGradient) {
  ValueProblem p(3);
  p.values = Tensor({3}, {1.0f, 1.0f, 0.1f});
  p.old = Tensor({3}, {0, 0, 0});
  p.returns = Tensor({3}, {2, -2, 2});
  p.weights = Tensor({3}, {1, 1, 1});
  p.divisor = Tensor({1}, {1});
  const test::LossResults got = run(p, 0.5f);
  EXPECT_EQ(got.gradient, (std::vector<float>{0, 3, -1.9f}));
  EXPECT_EQ(got.stats[1], 1.0f);
}

TEST(ValueLossTest, WithoutWeightsEverythingIsZero) {
  ValueProblem p(50);
  p.weights = Tensor({50}, std::vector<float>(50, 0.0f));
  const test::LossResults got = run(p, 0.2f);
  test::expect_nothing(got);
}

TEST(ValueLossTest, AnyThreadCountGivesTheSameBits) {
  ValueProblem p(100003);
  const test::LossResults one = run(p, 0.2f, 1), three = run(p, 0.2f, 3);
  test::expect_same_bits(three, one);
}

TEST(ValueLossTest, AClipNeedsOldValues) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  ValueProblem p(5);
  Tensor loss = Tensor::unwritten({1}), stats = Tensor::unwritten({4});
  must(value_loss_async(backend, stream, {p.tokens(false), p.divisor.view(), loss.view(), stats.view(), {}}));
  EXPECT_NE(value_loss_async(backend, stream,
                             {p.tokens(false), p.divisor.view(), loss.view(), stats.view(), {0.2f}})
                .message()
                .find("there are no old_values"),
            std::string_view::npos);
}

}  // namespace
}  // namespace strata::kernels
