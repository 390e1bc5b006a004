#include <strata/kernels/virtual_rows.h>

#include <gmock/gmock.h>

#include "embedding/virtual_rows_math.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using ::testing::HasSubstr;

struct Sizes {
  std::int64_t sequences, seq, n, h, columns;
  std::int64_t rows() const { return sequences * seq; }
  std::int64_t spliced() const { return sequences * (seq + n); }
};
// Whole rows and parts of rows, one virtual row, more of them than tokens, rows wider than the columns that
// are summed at a time, and no sequence.
const Sizes kSizes[] = {{3, 5, 2, 7, 7},       {2, 4, 3, 12, 8}, {1, 1, 1, 1, 1},   {4, 2, 9, 33, 20},
                        {2, 3, 2, 1300, 1100}, {0, 3, 2, 4, 4},  {70, 3, 1, 300, 8}};

/// The rows of each sequence behind the virtual ones, written as one thinks of them.
std::vector<float> spliced(const Sizes& s, const std::vector<float>& x, const std::vector<float>& added) {
  std::vector<float> y;
  for (std::int64_t b = 0; b < s.sequences; ++b) {
    for (std::int64_t row = 0; row < s.n; ++row)
      for (std::int64_t c = 0; c < s.h; ++c) {
        const std::int64_t own = c - (s.h - s.columns);
        y.push_back(own < 0 || added.empty() ? 0.0f : added[static_cast<std::size_t>(row * s.columns + own)]);
      }
    for (std::int64_t i = b * s.seq * s.h; i < (b + 1) * s.seq * s.h; ++i)
      y.push_back(x[static_cast<std::size_t>(i)]);
  }
  return y;
}

class VirtualRowsTest : public ::testing::TestWithParam<DType> {
 protected:
  Tensor tensor(Shape shape, int seed) const {
    return Tensor(shape, test::Values(seed).floats(shape.n_elems()), GetParam());
  }
  Tensor unwritten(Shape shape) const { return Tensor::unwritten(shape, GetParam()); }
};

TEST_P(VirtualRowsTest, RowsAreSplicedBeforeEachSequenceAndDroppedAgain) {
  const auto pool = test::pool();
  for (const Sizes& s : kSizes) {
    Tensor x = tensor({s.rows(), s.h}, 1), added = tensor({s.n, s.columns}, 2);
    Tensor y = unwritten({s.spliced(), s.h}), zeros = y, back = unwritten({s.rows(), s.h});
    splice_rows_host({x.view(), added.view(), y.view(), s.n, s.seq}, *pool);
    EXPECT_EQ(y.values(), spliced(s, x.values(), added.values())) << s.h;
    splice_rows_host({x.view(), {}, zeros.view(), s.n, s.seq}, *pool);
    EXPECT_EQ(zeros.values(), spliced(s, x.values(), {})) << s.h;
    drop_rows_host({y.view(), back.view(), s.n, s.seq}, *pool);
    EXPECT_EQ(back.values(), x.values()) << s.h;
  }
}

TEST_P(VirtualRowsTest, TheGradientIsTheSumOverTheSequences) {
  const auto pool = test::pool();
  for (const Sizes& s : kSizes) {
    Tensor dy = tensor({s.spliced(), s.h}, 3), dadded = unwritten({s.n, s.columns});
    Tensor sum({s.n, s.columns}, test::Values(4).floats(s.n * s.columns));
    const std::vector<float> before = sum.values(), dys = dy.values();
    splice_rows_backward_host({dy.view(), dadded.view(), s.seq}, *pool);
    splice_rows_backward_host({dy.view(), sum.view(), s.seq, true}, *pool);
    std::vector<float> want(before.size());
    for (std::int64_t b = 0; b < s.sequences; ++b)
      for (std::int64_t i = 0; i < s.n * s.columns; ++i)
        want[static_cast<std::size_t>(i)] += dys[static_cast<std::size_t>(
            (b * (s.n + s.seq) + i / s.columns) * s.h + s.h - s.columns + i % s.columns)];
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(sum.values()[i], before[i] + want[i]) << i;
    Tensor rounded({s.n, s.columns}, want, GetParam());
    EXPECT_EQ(test::differing_bits(dadded.values(), rounded.values()), 0u) << s.h;
  }
}

TEST_P(VirtualRowsTest, RowsAtTheFirstPositionsAreReplacedAlsoInPlace) {
  const auto pool = test::pool();
  for (const Sizes& s : kSizes) {
    Tensor x = tensor({s.rows(), s.h}, 1), added = tensor({s.n, s.columns}, 2);
    Tensor y = unwritten({s.rows(), s.h});
    std::vector<std::int32_t> positions;
    for (std::int64_t t = 0; t < s.rows(); ++t)
      positions.push_back(static_cast<std::int32_t>((t * 5 + 1) % (2 * s.n)));
    std::vector<float> want = x.values();
    for (std::int64_t t = 0; t < s.rows(); ++t)
      for (std::int64_t c = 0; c < s.columns && positions[static_cast<std::size_t>(t)] < s.n; ++c)
        want[static_cast<std::size_t>(t * s.h + s.h - s.columns + c)] =
            added.values()[static_cast<std::size_t>(positions[static_cast<std::size_t>(t)] * s.columns + c)];
    replace_rows_host({x.view(), test::view(positions), added.view(), y.view()}, *pool);
    EXPECT_EQ(y.values(), want) << s.h;
    replace_rows_host({x.view(), test::view(positions), added.view(), x.view()}, *pool);
    EXPECT_EQ(x.values(), want) << s.h;
  }
}

TEST_P(VirtualRowsTest, BitsDoNotDependOnTheNumberOfThreads) {
  const Sizes& s = kSizes[6];
  const auto run = [&](int threads) {
    Tensor dy = tensor({s.spliced(), s.h}, 3), dadded = unwritten({s.n, s.columns});
    splice_rows_backward_host({dy.view(), dadded.view(), s.seq}, *test::pool(threads));
    return dadded.values();
  };
  EXPECT_EQ(test::differing_bits(run(1), run(3)), 0u);
}

INSTANTIATE_TEST_SUITE_P(DTypes, VirtualRowsTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

// Computes on the host what each thread of the device does.
TEST(VirtualRowsMathTest, ElementsAreThoseOfTheHostsOps) {
  const auto pool = test::pool();
  for (const Sizes& s : kSizes) {
    std::vector<float> x = test::Values(1).floats(s.rows() * s.h),
                       added = test::Values(2).floats(s.n * s.columns);
    const std::vector<float> y = spliced(s, x, added);
    for (const float* rows : {static_cast<const float*>(added.data()), static_cast<const float*>(nullptr)}) {
      const detail::VirtualRows<float> virtual_rows{rows, s.columns, s.h};
      const std::vector<float> want = rows == nullptr ? spliced(s, x, {}) : y;
      for (std::size_t i = 0; i < y.size(); ++i)
        ASSERT_EQ(detail::spliced_value(x.data(), virtual_rows, s.n, s.seq, static_cast<std::int64_t>(i)),
                  want[i]);
    }
    for (std::int64_t i = 0; i < s.rows() * s.h; ++i)
      ASSERT_EQ(y[static_cast<std::size_t>(detail::kept_row(i / s.h, s.n, s.seq) * s.h + i % s.h)],
                x[static_cast<std::size_t>(i)]);
    Tensor dy({s.spliced(), s.h}, y), dadded = Tensor::unwritten({s.n, s.columns});
    splice_rows_backward_host({dy.view(), dadded.view(), s.seq}, *pool);
    for (std::int64_t i = 0; i < s.n * s.columns; ++i)
      ASSERT_EQ(detail::virtual_gradient(y.data(), s.h, s.columns, s.n + s.seq, s.sequences, i),
                dadded.values()[static_cast<std::size_t>(i)]);
    Tensor from({s.rows(), s.h}, x), rows({s.n, s.columns}, added),
        replaced = Tensor::unwritten({s.rows(), s.h});
    std::vector<std::int32_t> positions(static_cast<std::size_t>(s.rows()));
    for (std::size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<std::int32_t>(t % 4);
    replace_rows_host({from.view(), test::view(positions), rows.view(), replaced.view()}, *pool);
    for (std::int64_t i = 0; i < s.rows() * s.h; ++i)
      ASSERT_EQ(detail::replaced_value(x.data(), positions.data(),
                                       detail::VirtualRows<float>{added.data(), s.columns, s.h}, s.n, i),
                replaced.values()[static_cast<std::size_t>(i)]);
  }
}

TEST(VirtualRowsTest, ArgumentsThatDoNotFitAreRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor x({6, 4}, std::vector<float>(24)), y({10, 4}, std::vector<float>(40)),
      added({2, 4}, std::vector<float>(8)), wide({2, 5}, std::vector<float>(10));
  const auto splices = [&](Tensor& rows, std::int64_t n, std::int64_t seq) {
    return std::string(
        splice_rows_async(backend, stream, {x.view(), rows.view(), y.view(), n, seq}).message());
  };
  EXPECT_EQ(splices(added, 2, 3), "ok");
  EXPECT_THAT(splices(added, 2, 4), HasSubstr("x has 6 rows; it must have a multiple of 4"));
  EXPECT_THAT(splices(added, 3, 3), HasSubstr("it must be f32, 3 rows of 4"));
  EXPECT_THAT(splices(wide, 2, 3), HasSubstr("virtual rows of 5 columns; there must be 1 to 4"));
  EXPECT_THAT(splices(added, -1, 3), HasSubstr("-1 virtual rows before sequences of 3"));
  EXPECT_THAT(splices(added, 2, 2), HasSubstr("y is f32 [10, 4]; it must be f32, 12 rows of 4"));
  EXPECT_THAT(std::string(drop_rows_async(backend, stream, {y.view(), x.view(), 1, 3}).message()),
              HasSubstr("x has 10 rows; it must have a multiple of 4"));
  Tensor half({2, 4}, std::vector<float>(8), DType::bf16), dy({10, 4}, std::vector<float>(40), DType::bf16);
  EXPECT_THAT(
      std::string(splice_rows_backward_async(backend, stream, {dy.view(), half.view(), 3, true}).message()),
      HasSubstr("only an f32 gradient can be accumulated into"));
  std::vector<std::int32_t> positions(5);
  EXPECT_THAT(std::string(replace_rows_async(backend, stream,
                                             {x.view(), test::view(positions), added.view(), x.view()})
                              .message()),
              HasSubstr("positions is i32 [5]; it must be i32 with 6 elements"));
}

}  // namespace
}  // namespace strata::kernels
