#include <strata/kernels/experts/biases.h>

#include <numeric>

#include <gmock/gmock.h>

#include <strata/kernels/experts/rows.h>

#include "experts/bias_math.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;
using ::testing::HasSubstr;

double inner(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// Biases of experts for tokens that choose at random; one expert has more rows than a panel, one has none.
class ExpertBiasTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t tokens = 150, chosen = 3, experts = 5, h = 301, choices = tokens * chosen;
  ExpertBiasTest() {
    for (std::int32_t& expert : numbers) expert = expert == 3 ? 1 : expert;
    route_rows_host({of_tokens(), test::view(offsets), test::view(source), test::view(position)},
                    *test::pool());
  }
  TensorView of_tokens() {
    TensorView all = test::view(numbers);
    all.shape = {tokens, chosen};
    return all;
  }
  std::vector<float> forward() {
    Tensor y = Tensor::unwritten({tokens, h}, GetParam());
    expert_bias_forward_host({bias.view(), weights.view(), of_tokens(), y.view()}, *test::pool());
    return y.values();
  }
  std::vector<float> backward(Tensor into, bool accumulate = false) {
    expert_bias_backward_host(
        {dy.view(), weights.view(), test::view(offsets), test::view(source), into.view(), accumulate},
        *test::pool());
    return into.values();
  }

  std::vector<std::int32_t> numbers = Values(1).below(choices, experts), offsets = {0, 0, 0, 0, 0, 0},
                            source = std::vector<std::int32_t>(choices), position = source;
  Tensor bias{{experts, h}, Values(2).floats(experts* h), GetParam()};
  Tensor weights{{tokens, chosen}, Values(3).floats(choices)};
  Tensor dy{{tokens, h}, Values(4).floats(tokens* h), GetParam()};
};

// The f32 sum in the stated order, rounded once: nothing is left open.
TEST_P(ExpertBiasTest, ATokenGetsTheWeightedBiasesOfItsExpertsInOrder) {
  const std::vector<float> of_bias = bias.values(), of_weights = weights.values();
  std::vector<float> want;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t c = 0; c < h; ++c) {
      float sum = 0;
      for (std::int64_t choice = t * chosen; choice < (t + 1) * chosen; ++choice) {
        const auto i = static_cast<std::size_t>(choice);
        sum = sum + of_weights[i] * of_bias[static_cast<std::size_t>(numbers[i] * h + c)];
      }
      want.push_back(sum);
    }
  EXPECT_EQ(test::differing_bits(forward(), Tensor({tokens, h}, want, GetParam()).values()), 0u);
}

// It is linear in the biases and in the weights, so that each has the same product with its gradient.
TEST_P(ExpertBiasTest, GradientsHaveTheProductsOfTheResult) {
  const double want = inner(forward(), dy.values()), bar = GetParam() == DType::f32 ? 1e-2 : 4.0;
  const std::vector<float> dbias = backward(Tensor::unwritten({experts, h}));
  EXPECT_NEAR(inner(dbias, bias.values()), want, bar);
  EXPECT_EQ(std::count(dbias.begin() + 3 * h, dbias.begin() + 4 * h, 0.0f), h) << "no token chose expert 3";
  Tensor dweights = Tensor::unwritten({tokens, chosen});
  expert_bias_backward_weights_host({dy.view(), bias.view(), of_tokens(), dweights.view()}, *test::pool());
  EXPECT_NEAR(inner(dweights.values(), weights.values()), want, bar);
}

TEST_P(ExpertBiasTest, GradientsAreRoundedOnceOrAddedToASum) {
  const std::vector<float> alone = backward(Tensor::unwritten({experts, h}));
  EXPECT_EQ(test::differing_bits(backward(Tensor::unwritten({experts, h}, GetParam())),
                                 Tensor({experts, h}, alone, GetParam()).values()),
            0u);
  const std::vector<float> before = Values(5).floats(experts * h);
  std::vector<float> want = before;
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = want[i] + alone[i];
  EXPECT_EQ(test::differing_bits(backward(Tensor({experts, h}, before), true), want), 0u);
}

// The host goes along rows, a thread of a GPU along a column.
TEST_P(ExpertBiasTest, AColumnByItselfHasTheBitsOfTheHost) {
  if (GetParam() != DType::f32) return;
  const std::vector<float> got = backward(Tensor::unwritten({experts, h}));
  std::vector<float> want;
  for (std::size_t e = 0; e < experts; ++e)
    for (std::int64_t c = 0; c < h; ++c)
      want.push_back(detail::expert_bias_gradient(dy.view().as<float>(), weights.view().as<float>(),
                                                  source.data(), offsets[e], offsets[e + 1], chosen, h, c));
  EXPECT_EQ(test::differing_bits(got, want), 0u);
}

TEST_P(ExpertBiasTest, ARouterAddsItsBiasToEachTokensLogits) {
  const std::vector<float> logits = Values(6).floats(tokens * experts);
  Tensor sums({tokens, experts}, logits), added({experts}, Values(7).floats(experts), GetParam());
  router_bias_host({sums.view(), added.view(), sums.view()}, *test::pool());
  const std::vector<float> got = sums.values(), of_bias = added.values();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], logits[i] + of_bias[i % experts]);
}

INSTANTIATE_TEST_SUITE_P(DTypes, ExpertBiasTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(ExpertBiasCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor x({2, 4}, std::vector<float>(8)), bias({3, 4}, std::vector<float>(12)),
      narrow({3, 5}, std::vector<float>(15)), weights({2, 2}, std::vector<float>(4)),
      three({3}, std::vector<float>(3));
  std::vector<std::int32_t> all = {0, 1, 2, 0}, offsets = {0, 2, 3, 4};
  const auto forward = [&](Tensor& of, std::vector<std::int32_t>& experts) {
    return std::string(
        expert_bias_forward_async(backend, stream, {of.view(), weights.view(), test::view(experts), x.view()})
            .message());
  };
  EXPECT_EQ(forward(bias, all), "ok");
  EXPECT_THAT(forward(narrow, all), HasSubstr("bias has rows of 5; it must have rows of 4"));
  Tensor half({3, 4}, std::vector<float>(12), DType::bf16),
      rounded({2, 4}, std::vector<float>(8), DType::bf16);
  EXPECT_THAT(std::string(expert_bias_backward_async(backend, stream,
                                                     {rounded.view(), weights.view(), test::view(offsets),
                                                      test::view(all), half.view(), true})
                              .message()),
              HasSubstr("dbias is bf16; what is accumulated into must be f32"));
  EXPECT_THAT(std::string(router_bias_async(backend, stream, {x.view(), three.view(), x.view()}).message()),
              HasSubstr("bias is f32 [3]; it must be f32 with 4 elements"));
}

}  // namespace
}  // namespace strata::kernels
