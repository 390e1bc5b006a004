#include <strata/kernels/align/segment_sum.h>

#include <cmath>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// Sums, or means, and counts.
struct Sums {
  std::vector<float> sums, counts;
};
Sums sums_of(const std::vector<float>& x, std::vector<std::int32_t> segments, std::int64_t n, bool mean,
             int threads = 2) {
  Tensor values({std::ssize(x)}, x), sums = Tensor::unwritten({n}), counts = sums;
  test::Workspace workspace(segment_sum_workspace_bytes(n));
  segment_sum_host({values.view(), test::view(segments), sums.view(), counts.view(), workspace.view(), mean},
                   *test::pool(threads));
  return {sums.values(), counts.values()};
}
std::vector<float> gradient_of(std::vector<std::int32_t> segments, const std::vector<float>& counts,
                               const std::vector<float>& dsums, bool mean, int threads = 2) {
  const auto n = std::ssize(dsums);
  Tensor c({n}, counts), d({n}, dsums), dx = Tensor::unwritten({std::ssize(segments)});
  segment_sum_backward_host({test::view(segments), c.view(), d.view(), dx.view(), mean},
                            *test::pool(threads));
  return dx.values();
}

TEST(SegmentSumTest, AddsTheValuesOfEachSegmentAndIgnoresTheOthers) {
  const float nan = std::nanf("");
  const Sums got = sums_of({1, nan, 2, 4, 8}, {3, -1, 0, 3, 0}, 4, false);
  EXPECT_EQ(got.sums, (std::vector<float>{10, 0, 0, 5}));
  EXPECT_EQ(got.counts, (std::vector<float>{2, 0, 0, 2}));
}

TEST(SegmentSumTest, TheMeanOfAnEmptySegmentIsZero) {
  EXPECT_EQ(sums_of({1, 2, 4, 8}, {2, 0, 2, 0}, 3, true).sums, (std::vector<float>{5, 0, 2.5f}));
  EXPECT_EQ(sums_of({7}, {-1}, 1, true).sums, (std::vector<float>{0}));
}

TEST(SegmentSumTest, TheGradientIsThatOfTheSegmentOrZero) {
  EXPECT_EQ(gradient_of({1, -1, 0, 1}, {1, 2, 0}, {10, 30, 7}, false), (std::vector<float>{30, 0, 10, 30}));
  EXPECT_EQ(gradient_of({1, -1, 0, 1}, {1, 2, 0}, {10, 30, 7}, true), (std::vector<float>{15, 0, 10, 15}));
}

TEST(SegmentSumTest, LongSumsAreRoundedOnce) {
  constexpr std::int64_t kTokens = 200001, kSegments = 7;
  const std::vector<float> x = Values(1).floats(kTokens, 1.0, -3.0);
  const std::vector<std::int32_t> segments = Values(2).below(kTokens, kSegments);
  std::vector<double> want(kSegments);
  for (std::size_t t = 0; t < x.size(); ++t)
    want[static_cast<std::size_t>(segments[t])] += static_cast<double>(x[t]);
  const Sums got = sums_of(x, segments, kSegments, false);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got.sums[i], static_cast<float>(want[i])) << i;
}

TEST(SegmentSumTest, AnyThreadCountGivesTheSameBits) {
  const std::vector<float> x = Values(1).floats(50001);
  const std::vector<std::int32_t> segments = Values(2).below(50001, 33);
  const Sums one = sums_of(x, segments, 33, true, 1), three = sums_of(x, segments, 33, true, 3);
  EXPECT_EQ(one.sums, three.sums);
  EXPECT_EQ(gradient_of(segments, one.counts, one.sums, true, 1),
            gradient_of(segments, one.counts, one.sums, true, 3));
}

TEST(SegmentSumTest, RefusesInconsistentOperands) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor x({3}, {1, 2, 3}), sums = Tensor::unwritten({2}), counts = sums;
  std::vector<std::int32_t> segments = {0, 1};
  test::Workspace workspace(segment_sum_workspace_bytes(2));
  EXPECT_NE(
      segment_sum_async(backend, stream,
                        {x.view(), test::view(segments), sums.view(), counts.view(), workspace.view(), false})
          .message()
          .find("segments is i32 [2]; it must be i32 with 3 elements"),
      std::string_view::npos);
}

}  // namespace
}  // namespace strata::kernels
