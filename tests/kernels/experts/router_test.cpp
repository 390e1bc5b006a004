#include <strata/kernels/experts/router.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>

#include "support/op_test.h"
#include "support/reference/experts.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using Score = RouterRule::Score;

struct RouterProblem {
  const char* name;
  std::int64_t tokens, experts, chosen;
  RouterRule rule;
  bool has_bias = false;
  std::vector<float> logits = Values(1).floats(tokens * experts, 4.0);
  std::vector<float> bias = Values(2).floats(has_bias ? experts : 0, 0.3);

  struct Result {
    std::vector<std::int32_t> experts;
    std::vector<float> weights;
  };
  Result run(int threads = 2) const {
    Tensor l({tokens, experts}, logits), b({experts}, has_bias ? bias : std::vector<float>(1)),
        weights = Tensor::unwritten({tokens, chosen});
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(tokens * chosen), -7);
    TensorView of_numbers = test::view(numbers);
    of_numbers.shape = {tokens, chosen};
    router_top_k_host({l.view(), has_bias ? b.view() : TensorView{}, of_numbers, weights.view(), rule},
                      *test::pool(threads));
    return {numbers, weights.values()};
  }
  test::reference::Vec token(std::int64_t t) const {
    const auto from = logits.begin() + t * experts;
    return {from, from + experts};
  }
  std::vector<std::size_t> choice(std::int64_t t) const {
    return test::reference::router_choice(token(t), test::widen(bias), rule,
                                          static_cast<std::size_t>(chosen));
  }
};
void PrintTo(const RouterProblem& p, std::ostream* out) { *out << p.name; }

std::vector<RouterProblem> router_problems() {
  return {{"softmax", 70, 64, 8, {}},
          {"renormalized", 70, 60, 4, {.renormalize = true}},
          {"all", 40, 8, 8, {.renormalize = true, .scale = 2.0f}},
          {"one", 40, 33, 1, {}},
          {"single_expert", 5, 1, 1, {.score = Score::sigmoid}},
          {"sigmoid_bias", 70, 128, 6, {Score::sigmoid, true, 1e-20f, 2.5f}, true},
          {"groups", 70, 64, 8, {Score::sigmoid, true, 1e-20f, 2.5f, 8, 4}, true},
          {"best_of_group", 70, 64, 6, {Score::softmax, false, 0, 2.5f, 8, 3, true}},
          {"pairs", 70, 32, 4, {Score::softmax, false, 0, 1, 16, 2}},
          {"largest", 3, 1024, 10, {.renormalize = true}}};
}

class RouterTest : public ::testing::TestWithParam<RouterProblem> {};

TEST_P(RouterTest, FollowsTheF64Reference) {
  const RouterProblem& p = GetParam();
  const auto got = p.run();
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    const auto want = p.choice(t);
    const auto first = static_cast<std::size_t>(t * p.chosen);
    for (std::size_t j = 0; j < want.size(); ++j)
      EXPECT_EQ(got.experts[first + j], static_cast<std::int32_t>(want[j])) << "token " << t << ", " << j;
    const std::vector<float> weights(got.weights.begin() + static_cast<std::ptrdiff_t>(first),
                                     got.weights.begin() + static_cast<std::ptrdiff_t>(first) + p.chosen);
    EXPECT_LE(test::relative_error(weights, test::reference::router_weights(p.token(t), want, p.rule)), 2e-6);
  }
}

TEST_P(RouterTest, ATokenHasTheSameBitsAloneAndOnAnyNumberOfThreads) {
  const RouterProblem& p = GetParam();
  const auto want = p.run(1), got = p.run(3);
  EXPECT_EQ(got.experts, want.experts);
  EXPECT_EQ(test::differing_bits(got.weights, want.weights), 0u);
  RouterProblem alone = p;
  alone.tokens = 1;
  alone.logits.assign(p.logits.end() - p.experts, p.logits.end());
  const auto last = alone.run();
  const std::vector<float> want_last(want.weights.end() - p.chosen, want.weights.end());
  EXPECT_EQ(test::differing_bits(last.weights, want_last), 0u);
}

TEST_P(RouterTest, TheGradientIsThatOfTheWeights) {
  const RouterProblem& p = GetParam();
  auto chosen = p.run();
  TensorView numbers = test::view(chosen.experts);
  numbers.shape = {p.tokens, p.chosen};
  const std::vector<float> dweights = Values(3).floats(p.tokens * p.chosen);
  Tensor l({p.tokens, p.experts}, p.logits), d({p.tokens, p.chosen}, dweights),
      dlogits = Tensor::unwritten({p.tokens, p.experts});
  router_top_k_backward_host({l.view(), numbers, d.view(), dlogits.view(), p.rule}, *test::pool());
  test::reference::Vec want;
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    const auto experts = p.choice(t);
    for (std::size_t e = 0; e < static_cast<std::size_t>(p.experts); ++e)
      want.push_back(test::reference::slope(
          [&](double x) {
            test::reference::Vec logits = p.token(t);
            logits[e] = x;
            const auto weights = test::reference::router_weights(logits, experts, p.rule);
            double sum = 0;
            for (std::size_t j = 0; j < weights.size(); ++j)
              sum += weights[j] * static_cast<double>(dweights[static_cast<std::size_t>(t * p.chosen) + j]);
            return sum;
          },
          static_cast<double>(p.logits[static_cast<std::size_t>(t * p.experts) + e])));
  }
  EXPECT_LE(test::relative_error(dlogits.values(), want), 1e-5);
}

TEST_P(RouterTest, ASixteenBitGradientIsTheF32GradientRoundedOnce) {
  const RouterProblem& p = GetParam();
  auto chosen = p.run();
  TensorView numbers = test::view(chosen.experts);
  numbers.shape = {p.tokens, p.chosen};
  Tensor l({p.tokens, p.experts}, p.logits), d({p.tokens, p.chosen}, Values(3).floats(p.tokens * p.chosen)),
      wide = Tensor::unwritten({p.tokens, p.experts});
  router_top_k_backward_host({l.view(), numbers, d.view(), wide.view(), p.rule}, *test::pool());
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Tensor got = Tensor::unwritten({p.tokens, p.experts}, dtype);
    router_top_k_backward_host({l.view(), numbers, d.view(), got.view(), p.rule}, *test::pool());
    EXPECT_EQ(
        test::differing_bits(got.values(), Tensor({p.tokens, p.experts}, wide.values(), dtype).values()), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RouterTest, ::testing::ValuesIn(router_problems()),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(RouterChoiceTest, OfEqualScoresTheLowerExpertIsChosen) {
  RouterProblem p{"ties", 2, 8, 3, {}};
  p.logits = {1, 2, 2, 2, 2, 0, 0, 0, 0.0f, -0.0f, 0.0f, -0.0f, 0, 0, 0, 0};
  EXPECT_EQ(p.run().experts, (std::vector<std::int32_t>{1, 2, 3, 0, 1, 2}));
}

TEST(RouterChoiceTest, OfEqualGroupsTheFirstAreChosen) {
  RouterProblem p{"ties", 1, 8, 4, {Score::sigmoid, false, 0, 1, 4, 2}};
  p.logits.assign(8, 0.5f);
  EXPECT_EQ(p.run().experts, (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(RouterChoiceTest, TheBiasChangesTheChoiceAndNotTheWeights) {
  RouterProblem p{"bias", 1, 4, 2, {.score = Score::sigmoid}, true};
  p.logits = {0, 0, 0, 0};
  p.bias = {-1, 0, 2, 1};
  const auto got = p.run();
  EXPECT_EQ(got.experts, (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(got.weights, (std::vector<float>{0.5f, 0.5f}));
}

TEST(RouterChoiceTest, NaNsGiveValidExpertsAndReachTheWeights) {
  for (const RouterProblem& each : router_problems()) {
    RouterProblem p = each;
    p.logits.assign(p.logits.size(), std::nanf(""));
    p.logits.back() = 1.0f;  // the last token has one number
    for (std::int64_t i = 1; i < p.experts; ++i)
      p.logits[static_cast<std::size_t>(i)] = 0.5f;  // the first one NaN
    const auto got = p.run();
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      const auto from = got.experts.begin() + t * p.chosen;
      const std::set<std::int32_t> different(from, from + p.chosen);
      EXPECT_EQ(std::ssize(different), p.chosen) << p.name;
      EXPECT_GE(*different.begin(), 0);
      EXPECT_LT(*different.rbegin(), p.experts);
      const auto weights = got.weights.begin() + t * p.chosen;
      const auto nans = std::count_if(weights, weights + p.chosen, [](float x) { return std::isnan(x); });
      if (p.experts > 1) {
        EXPECT_EQ(nans, p.chosen) << p.name << ", token " << t;
      }
    }
  }
}

TEST(RouterChoiceTest, ANaNIsBelowMinusInfinity) {
  RouterProblem p{"nan", 1, 4, 3, {.score = Score::sigmoid}, true};
  p.logits = {std::nanf(""), 0, 0, 0};
  p.bias = {0, -HUGE_VALF, 1, std::nanf("")};
  EXPECT_EQ(p.run().experts, (std::vector<std::int32_t>{2, 1, 0}));
}

TEST(RouterChoiceTest, ExpertsThatDoNotExistHaveTheGradientOfTheLast) {
  Tensor l({1, 4}, {1, 2, 3, 4}), d({1, 2}, {1, -2}), got = Tensor::unwritten({1, 4}), want = got;
  std::vector<std::int32_t> beyond = {99, 1}, last = {3, 1};
  router_top_k_backward_host({l.view(), test::view(beyond), d.view(), got.view(), {}}, *test::pool());
  router_top_k_backward_host({l.view(), test::view(last), d.view(), want.view(), {}}, *test::pool());
  EXPECT_EQ(got.values(), want.values());
}

TEST(RouterCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor l({2, 8}, std::vector<float>(16)), w({2, 2}, std::vector<float>(4)),
      bias({8}, std::vector<float>(8));
  std::vector<std::int32_t> numbers(4);
  TensorView of_numbers = test::view(numbers);
  of_numbers.shape = {2, 2};
  const auto message = [&](const auto& change) {
    RouterTopKArgs args = {l.view(), bias.view(), of_numbers, w.view(), {}};
    change(args);
    return std::string(router_top_k_async(backend, stream, args).message());
  };
  const auto with_rule = [&](std::int32_t groups, std::int32_t top) {
    return message([&](RouterTopKArgs& c) {
      c.rule.groups = groups;
      c.rule.top_groups = top;
    });
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(with_rule(1, 1), "ok");
  EXPECT_EQ(with_rule(4, 1), "ok");
  EXPECT_EQ(with_rule(8, 8), "ok");
  EXPECT_THAT(with_rule(3, 1), HasSubstr("router_top_k: 8 experts are not a multiple of 3 groups"));
  EXPECT_THAT(with_rule(4, 5), HasSubstr("top_groups is 5 of 4 groups"));
  EXPECT_THAT(with_rule(4, 0), HasSubstr("top_groups is 0 of 4 groups"));
  EXPECT_THAT(with_rule(8, 2), HasSubstr("a group has 1 expert; it needs 2"));
  EXPECT_THAT(message([](RouterTopKArgs& c) { c.bias.shape = {7}; }), HasSubstr("bias is f32 [7]"));
  EXPECT_THAT(message([](RouterTopKArgs& c) { c.logits.dtype = DType::bf16; }), HasSubstr("logits is bf16"));
  EXPECT_THAT(message([](RouterTopKArgs& c) {
                c.weights.shape = {2, 3};
              }),
              HasSubstr("weights is f32 [2, 3]"));
  std::vector<std::int32_t> nine(18);
  Tensor wide({2, 9}, std::vector<float>(18));
  EXPECT_THAT(message([&](RouterTopKArgs& c) {
                c.experts = test::view(nine);
                c.experts.shape = {2, 9};
                c.weights = wide.view();
              }),
              HasSubstr("experts has 9 choices of 8 experts"));
  EXPECT_THAT(message([&](RouterTopKArgs& c) {
                c.experts = test::view(nine);
                c.experts.shape = {2, 3};
                c.weights = wide.view();
                c.weights.shape = {2, 3};
                c.rule.groups = 4;
              }),
              HasSubstr("experts has 3 choices; 1 groups have 2 experts"));
}

}  // namespace
}  // namespace strata::kernels
