#include <strata/kernels/subspace.h>

#include <gmock/gmock.h>

#include "kernels/subspace/spectra.h"

namespace strata::kernels {
namespace {

using test::KnownMatrix;
using test::Values;

struct SvdProblem {
  std::int64_t rows, columns, rank;
};
const SvdProblem kSvdProblems[] = {{60, 40, 8}, {40, 60, 8}, {20, 12, 12}, {33, 33, 1}};

class TruncatedSvdTest : public ::testing::TestWithParam<SvdMethod> {
 protected:
  static TruncatedSvd svd_of(const std::vector<float>& matrix, const SvdProblem& p, int threads = 2) {
    return must(truncated_svd(matrix, p.rows, p.columns, p.rank, GetParam(), *test::pool(threads)));
  }
  /// |A - U diag(s) V^T|^2.
  static double residual(const std::vector<float>& matrix, const SvdProblem& p, const TruncatedSvd& svd) {
    double sum = 0;
    for (std::int64_t i = 0; i < p.rows; ++i)
      for (std::int64_t k = 0; k < p.columns; ++k) {
        double left = matrix[static_cast<std::size_t>(i * p.columns + k)];
        for (std::int64_t j = 0; j < p.rank; ++j)
          left -= static_cast<double>(svd.u[static_cast<std::size_t>(i * p.rank + j)]) *
                  static_cast<double>(svd.s[static_cast<std::size_t>(j)]) *
                  static_cast<double>(svd.vt[static_cast<std::size_t>(j * p.columns + k)]);
        sum += left * left;
      }
    return sum;
  }
};

TEST_P(TruncatedSvdTest, ItsProductIsTheBestApproximationOfThatRank) {
  for (const SvdProblem& p : kSvdProblems)
    for (const test::Spectrum& spectrum : test::kSpectra) {
      const KnownMatrix m = test::known_matrix(p.rows, p.columns, spectrum.value);
      const TruncatedSvd svd = svd_of(m.values, p);
      const double all = test::square_sum(m.values), best = all - m.top_energy(p.rank);
      EXPECT_LE(residual(m.values, p, svd), best + 1e-3 * all) << spectrum.name << " " << p.rows;
    }
}

TEST_P(TruncatedSvdTest, BothFactorsAreOrthonormalAlsoWhereSingularValuesAreZero) {
  for (const SvdProblem& p : kSvdProblems)
    for (const test::Spectrum& spectrum : test::kSpectra) {
      const TruncatedSvd svd = svd_of(test::known_matrix(p.rows, p.columns, spectrum.value).values, p);
      const test::BasisProblem left{p.rows, p.columns, p.rank, SubspaceSide::left},
          right{p.rows, p.columns, p.rank, SubspaceSide::right};
      EXPECT_LE(test::orthonormality_error(left, svd.u), 2e-6) << spectrum.name << " " << p.rows;
      EXPECT_LE(test::orthonormality_error(right, svd.vt), 2e-6) << spectrum.name << " " << p.rows;
      EXPECT_TRUE(test::has_signs_of_a_basis(right, svd.vt)) << spectrum.name << " " << p.rows;
    }
}

TEST_P(TruncatedSvdTest, SingularValuesAreThoseOfTheMatrixInTheirOrder) {
  for (const SvdProblem& p : kSvdProblems) {
    const KnownMatrix m = test::known_matrix(p.rows, p.columns, test::kSpectra[2].value);
    const TruncatedSvd svd = svd_of(m.values, p);
    for (std::size_t j = 0; j < svd.s.size(); ++j) {
      EXPECT_NEAR(static_cast<double>(svd.s[j]), m.s[j], 0.01 * m.s[j] + 1e-6 * m.s[0])
          << p.rows << ", " << j;
      EXPECT_TRUE(j == 0 || svd.s[j] <= svd.s[j - 1]);
    }
  }
}

TEST_P(TruncatedSvdTest, BitsDoNotDependOnTheNumberOfThreads) {
  const SvdProblem p{200, 150, 30};
  const std::vector<float> matrix = Values(3).floats(p.rows * p.columns);
  const TruncatedSvd one = svd_of(matrix, p, 1), three = svd_of(matrix, p, 3);
  EXPECT_EQ(
      test::differing_bits(test::joined({one.u, one.s, one.vt}), test::joined({three.u, three.s, three.vt})),
      0u);
}

TEST_P(TruncatedSvdTest, OfAZeroMatrixSingularValuesAreZero) {
  const SvdProblem p{9, 7, 3};
  EXPECT_THAT(svd_of(std::vector<float>(63), p).s, ::testing::Each(0.0f));
}

INSTANTIATE_TEST_SUITE_P(Methods, TruncatedSvdTest, ::testing::Values(SvdMethod::subspace, SvdMethod::exact),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(TruncatedSvdTest, WhatHasNoSuchFactorsIsRefusedWithBothNumbers) {
  const auto refused = [](std::vector<float> matrix, std::int64_t rank) {
    return std::string(truncated_svd(matrix, 3, 2, rank, SvdMethod::exact, *test::pool()).status().message());
  };
  EXPECT_THAT(refused(std::vector<float>(5), 1), ::testing::HasSubstr("[3, 2] has 5 elements"));
  EXPECT_THAT(refused(std::vector<float>(6), 3), ::testing::HasSubstr("the rank is 3; of a matrix [3, 2]"));
  EXPECT_THAT(refused(std::vector<float>(6), 0), ::testing::HasSubstr("it must be 1 to 2"));
  EXPECT_THAT(refused({1, 2, std::nanf(""), 4, 5, 6}, 1), ::testing::HasSubstr("an Inf or a NaN"));
}

}  // namespace
}  // namespace strata::kernels
