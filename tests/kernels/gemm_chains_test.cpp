// GEMMs whose elements have the same bits in any company: Note [chains] in gemm_chains.h. Under ctest it also
// runs with oneDNN limited to fewer instructions than the CPU has.
#include "gemm/gemm_chains.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/linear.h>

#include "gemm/gemm_16bit.h"
#include "support/isas.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// A GEMM with its operands, and what Note [chains] says of its result.
struct ChainProblem {
  std::int64_t m, n, k;
  bool trans_a = false, trans_b = false, accumulate = false;
  std::vector<float> a = Values(static_cast<std::uint64_t>(m + 7 * n)).floats(m * k);
  std::vector<float> b = Values(static_cast<std::uint64_t>(n + 5 * k)).floats(n * k);
  std::vector<float> c = Values(static_cast<std::uint64_t>(m + n + k)).floats(m * n);

  detail::Gemm gemm(std::vector<float>& result) const {
    return {.trans_a = trans_a,
            .trans_b = trans_b,
            .m = m,
            .n = n,
            .k = k,
            .a = a.data(),
            .lda = trans_a ? m : k,
            .b = b.data(),
            .ldb = trans_b ? k : n,
            .c = result.data(),
            .ldc = n,
            .accumulate = accumulate};
  }
  std::vector<float> want() const {
    std::vector<float> out = c;
    const auto at = [](const std::vector<float>& of, std::int64_t i) {
      return of[static_cast<std::size_t>(i)];
    };
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        float& sum = out[static_cast<std::size_t>(i * n + j)];
        for (std::int64_t first = 0; first < k; first += 256) {
          float chain = 0;
          for (std::int64_t p = first; p < std::min(k, first + 256); ++p)
            chain = std::fma(at(a, trans_a ? p * m + i : i * k + p), at(b, trans_b ? j * k + p : p * n + j),
                             chain);
          sum = accumulate || first > 0 ? sum + chain : chain;
        }
      }
    return out;
  }
};
void PrintTo(const ChainProblem& p, std::ostream* out) {
  *out << p.m << " x " << p.n << " x " << p.k << (p.trans_a ? ", A transposed" : "")
       << (p.trans_b ? ", B transposed" : "") << (p.accumulate ? ", added" : "");
}

TEST(GemmChainsTest, EachElementIsASumOfChainsInEveryShape) {
  if (!detail::sums_by_chains())
    GTEST_SKIP() << "this CPU has no fused multiply-add, or oneDNN may not use it";
  for (const std::int64_t m : {1, 2, 4, 7, 15, 16, 17, 33, 72, 75, 150, 256})
    for (const std::int64_t n : {1, 2, 15, 16, 17, 40, 100, 256})
      for (const std::int64_t k : {1, 30, 256, 257, 800})
        for (const int kind : {0, 1, 2, 3, 4, 5}) {
          const ChainProblem p{.m = m,
                               .n = n,
                               .k = k,
                               .trans_a = kind / 2 == 2,
                               .trans_b = kind / 2 == 1,
                               .accumulate = kind % 2 == 1};
          std::vector<float> got = p.c;
          detail::gemm_one_thread(p.gemm(got));
          ASSERT_EQ(test::differing_bits(got, p.want()), 0u) << ::testing::PrintToString(p);
        }
}

TEST(GemmChainsTest, FewRowsHaveTheSameBitsOnEveryInstructionSet) {
  for (const auto isa : test::supported_isas()) {
    const test::IsaScope scope(isa);
    for (const std::int64_t m : {1, 3, 5, 15, 40})
      for (const std::int64_t n : {1, 16, 37})
        for (const std::int64_t k : {5, 270})
          for (const bool trans_b : {false, true}) {
            const ChainProblem p{.m = m, .n = n, .k = k, .trans_b = trans_b, .accumulate = m % 2 == 0};
            std::vector<float> got = p.c;
            detail::multiply_few_rows(p.gemm(got));
            ASSERT_EQ(test::differing_bits(got, p.want()), 0u) << ::testing::PrintToString(p);
          }
  }
}

/// A dtype, and whether its GEMM is widened to f32.
struct StoredAs {
  DType dtype;
  bool widened;
};
class GemmRowsTest : public ::testing::TestWithParam<StoredAs> {
 protected:
  GemmRowsTest() { force_widened_bf16_gemm(GetParam().widened); }
  ~GemmRowsTest() override { force_widened_bf16_gemm(false); }
};

// Rows of forward, rounded and in f32, and of the gradient of x, which is added to.
TEST_P(GemmRowsTest, ARowHasTheSameBitsAmongAnyNumberOfOthers) {
  if (!detail::sums_by_chains()) GTEST_SKIP() << "rows depend on the GEMM's shape on this CPU";
  constexpr std::int64_t kRows = 300;
  struct LayerSizes {
    std::int64_t n, k, step;
  };
  for (const LayerSizes s :
       {LayerSizes{70, 33, 1}, {33, 1100, 7}, {1100, 33, 7}, {1, 300, 11}, {700, 600, 13}}) {
    const std::vector<float> xs = Values(1).floats(kRows * s.k), dys = Values(2).floats(kRows * s.n);
    Tensor w({s.n, s.k}, Values(3).floats(s.n * s.k), GetParam().dtype);
    const auto run = [&](std::int64_t rows) {
      Tensor x({rows, s.k}, {xs.begin(), xs.begin() + rows * s.k}, GetParam().dtype);
      Tensor dy({rows, s.n}, {dys.begin(), dys.begin() + rows * s.n}, GetParam().dtype);
      Tensor y = Tensor::unwritten({rows, s.n}, GetParam().dtype);
      Tensor dx({rows, s.k}, std::vector<float>(static_cast<std::size_t>(rows * s.k), 0.5f),
                GetParam().dtype);
      Tensor logits = Tensor::unwritten({rows, s.n});
      linear_forward_host({x.view(), w.view(), {}, y.view()}, *test::pool());
      linear_forward_host({x.view(), w.view(), {}, logits.view()}, *test::pool());
      linear_backward_input_host({dy.view(), w.view(), dx.view(), true}, *test::pool());
      return std::array{y.values(), logits.values(), dx.values()};
    };
    const auto all = run(kRows);
    for (std::int64_t rows = 1; rows < kRows; rows += s.step) {
      const auto few = run(rows);
      for (std::size_t i = 0; i < few.size(); ++i)
        ASSERT_TRUE(std::equal(few[i].begin(), few[i].end(), all[i].begin()))
            << "result " << i << " of " << rows << " rows, " << s.n << " x " << s.k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GemmRowsTest,
                         ::testing::Values(StoredAs{DType::f32, false}, StoredAs{DType::bf16, true},
                                           StoredAs{DType::bf16, false}, StoredAs{DType::f16, true}),
                         [](const auto& test) {
                           return std::string(to_string(test.param.dtype)) +
                                  (test.param.widened ? "Widened" : "");
                         });

}  // namespace
}  // namespace strata::kernels
