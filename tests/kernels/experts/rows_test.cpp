#include <strata/kernels/experts/rows.h>

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

struct RoutedRows {
  std::vector<std::int32_t> offsets, source, position;
};
RoutedRows routed(std::vector<std::int32_t> experts, std::int64_t count) {
  RoutedRows rows{std::vector<std::int32_t>(static_cast<std::size_t>(count) + 1, -7),
                  std::vector<std::int32_t>(experts.size(), -7),
                  std::vector<std::int32_t>(experts.size(), -7)};
  route_rows_host(
      {test::view(experts), test::view(rows.offsets), test::view(rows.source), test::view(rows.position)},
      *test::pool());
  return rows;
}

TEST(RouteRowsTest, RowsAreSortedByExpertAndThenByChoice) {
  const RoutedRows rows = routed({2, 0, 3, 2, 0, 2}, 5);
  EXPECT_EQ(rows.offsets, (std::vector<std::int32_t>{0, 2, 2, 5, 6, 6}));
  EXPECT_EQ(rows.source, (std::vector<std::int32_t>{1, 4, 0, 3, 5, 2}));
  EXPECT_EQ(rows.position, (std::vector<std::int32_t>{2, 0, 5, 3, 1, 4}));
}

TEST(RouteRowsTest, FollowsAStableSort) {
  for (const std::int64_t count : {1, 2, 64, 1000}) {
    const std::vector<std::int32_t> experts = Values(1).below(4096, count);
    std::vector<std::int32_t> order(experts.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return experts[static_cast<std::size_t>(a)] < experts[static_cast<std::size_t>(b)];
    });
    const RoutedRows rows = routed(experts, count);
    EXPECT_EQ(rows.source, order);
    for (std::size_t r = 0; r < order.size(); ++r)
      EXPECT_EQ(rows.position[static_cast<std::size_t>(order[r])], static_cast<std::int32_t>(r));
    for (std::int64_t e = 0; e < count; ++e)
      EXPECT_EQ(rows.offsets[static_cast<std::size_t>(e) + 1] - rows.offsets[static_cast<std::size_t>(e)],
                std::count(experts.begin(), experts.end(), static_cast<std::int32_t>(e)));
  }
}

TEST(RouteRowsTest, ExpertsThatDoNotExistAreTakenAsTheLast) {
  const RoutedRows rows = routed({-1, 0, 3, 1 << 30}, 3);
  EXPECT_EQ(rows.offsets, (std::vector<std::int32_t>{0, 1, 1, 4}));
  EXPECT_EQ(rows.source, (std::vector<std::int32_t>{1, 0, 2, 3}));
}

TEST(RouteRowsTest, NoChoicesGiveNoRows) {
  EXPECT_EQ(routed({}, 3).offsets, (std::vector<std::int32_t>{0, 0, 0, 0}));
}

class ExpertRowsTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t tokens = 37, chosen = 3, h = 1031, rows = tokens * chosen;
  RoutedRows sorted = routed(Values(1).below(rows, 8), 8);
};

TEST_P(ExpertRowsTest, GatherCopiesTheTokensOfTheRows) {
  Tensor x({tokens, h}, Values(2).floats(tokens * h), GetParam()),
      got = Tensor::unwritten({rows, h}, GetParam());
  gather_rows_host({x.view(), test::view(sorted.source), got.view()}, *test::pool());
  const std::vector<float> values = x.values(), copies = got.values();
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t token = sorted.source[static_cast<std::size_t>(r)] / chosen;
    EXPECT_TRUE(std::equal(copies.begin() + r * h, copies.begin() + (r + 1) * h, values.begin() + token * h))
        << "row " << r;
  }
}

// The f32 sum in the stated order, rounded once: nothing is left open.
TEST_P(ExpertRowsTest, SumAddsTheRowsOfATokenInOrderAndTheBaseLast) {
  Tensor in({rows, h}, Values(3).floats(rows * h), GetParam()),
      base({tokens, h}, Values(4).floats(tokens * h), GetParam());
  for (const bool has_base : {false, true}) {
    Tensor y = Tensor::unwritten({tokens, h}, GetParam());
    sum_rows_host({in.view(), test::view(sorted.position), has_base ? base.view() : TensorView{}, y.view()},
                  *test::pool());
    const std::vector<float> of_rows = in.values(), of_base = base.values();
    std::vector<float> want;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t c = 0; c < h; ++c) {
        float sum = 0;
        for (std::int64_t j = 0; j < chosen; ++j)
          sum += of_rows[static_cast<std::size_t>(
              sorted.position[static_cast<std::size_t>(t * chosen + j)] * h + c)];
        want.push_back(has_base ? sum + of_base[static_cast<std::size_t>(t * h + c)] : sum);
      }
    EXPECT_EQ(test::differing_bits(y.values(), Tensor({tokens, h}, want, GetParam()).values()), 0u);
  }
}

TEST_P(ExpertRowsTest, TheResultMayBeTheBase) {
  Tensor in({rows, h}, Values(3).floats(rows * h), GetParam()),
      base({tokens, h}, Values(4).floats(tokens * h), GetParam()),
      y = Tensor::unwritten({tokens, h}, GetParam());
  sum_rows_host({in.view(), test::view(sorted.position), base.view(), y.view()}, *test::pool());
  sum_rows_host({in.view(), test::view(sorted.position), base.view(), base.view()}, *test::pool());
  EXPECT_EQ(test::differing_bits(base.values(), y.values()), 0u);
}

// <gather(x), d> = <x, sum(d)>: each is the derivative of the other.
TEST_P(ExpertRowsTest, SumIsTheDerivativeOfGather) {
  Tensor x({tokens, h}, Values(2).floats(tokens * h), GetParam()),
      d({rows, h}, Values(3).floats(rows * h), GetParam()),
      gathered = Tensor::unwritten({rows, h}, GetParam()), dx = Tensor::unwritten({tokens, h}, GetParam());
  gather_rows_host({x.view(), test::view(sorted.source), gathered.view()}, *test::pool());
  sum_rows_host({d.view(), test::view(sorted.position), {}, dx.view()}, *test::pool());
  const auto inner = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  EXPECT_NEAR(inner(gathered.values(), d.values()), inner(x.values(), dx.values()),
              GetParam() == DType::f32 ? 1e-2 : 4.0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, ExpertRowsTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(ExpertRowsCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor x({2, 4}, std::vector<float>(8)), rows({5, 4}, std::vector<float>(20)),
      six({6, 4}, std::vector<float>(24)), narrow({2, 3}, std::vector<float>(6));
  std::vector<std::int32_t> five = {0, 1, 2, 3, 0}, all = {0, 1, 2, 3, 0, 1}, one = {0};
  using ::testing::HasSubstr;
  EXPECT_THAT(
      std::string(gather_rows_async(backend, stream, {x.view(), test::view(five), rows.view()}).message()),
      HasSubstr("gather_rows: 5 rows are not a multiple of 2 tokens"));
  EXPECT_THAT(
      std::string(gather_rows_async(backend, stream, {x.view(), test::view(five), six.view()}).message()),
      HasSubstr("source is i32 [5]; it must be i32 with 6 elements"));
  EXPECT_THAT(
      std::string(
          sum_rows_async(backend, stream, {six.view(), test::view(all), narrow.view(), x.view()}).message()),
      HasSubstr("base is f32 [2, 3]; it must be f32, 2 rows of 4"));
  EXPECT_THAT(
      std::string(route_rows_async(backend, stream,
                                   {test::view(all), test::view(one), test::view(all), test::view(all)})
                      .message()),
      HasSubstr("offsets has 1 elements; it needs one more than there are experts"));
  EXPECT_THAT(
      std::string(route_rows_async(backend, stream,
                                   {test::view(all), test::view(five), test::view(five), test::view(all)})
                      .message()),
      HasSubstr("source is i32 [5]"));
}

}  // namespace
}  // namespace strata::kernels
