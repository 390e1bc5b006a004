#include <strata/kernels/subspace.h>

#include <gmock/gmock.h>

#include "kernels/subspace/spectra.h"

namespace strata::kernels {
namespace {

using test::BasisProblem;
using test::find_basis;
using test::FoundBasis;
using test::KnownMatrix;
using test::Tensor;
using test::Values;
using ::testing::HasSubstr;

// Tall, wide and square; one vector; the full rank; more vectors than a tile.
const BasisProblem kBasisProblems[] = {{60, 40, 8, SubspaceSide::right},   {40, 60, 8, SubspaceSide::left},
                                       {33, 33, 1, SubspaceSide::right},   {20, 12, 12, SubspaceSide::right},
                                       {12, 20, 12, SubspaceSide::left},   {24, 70, 10, SubspaceSide::right},
                                       {150, 140, 130, SubspaceSide::left}};

class FindBasisTest : public ::testing::TestWithParam<SvdMethod> {
 protected:
  static BasisProblem with_method(BasisProblem p) {
    p.method = GetParam();
    return p;
  }
  static BasisProblem problem(std::size_t i) { return with_method(kBasisProblems[i]); }
};

TEST_P(FindBasisTest, TheBasisIsOrthonormalAndCapturesTheEnergyOfTheLeadingVectors) {
  for (const BasisProblem& of : kBasisProblems) {
    const BasisProblem p = with_method(of);
    for (const test::Spectrum& spectrum : test::kSpectra) {
      const KnownMatrix m = test::known_matrix(p.rows, p.columns, spectrum.value);
      const FoundBasis found = find_basis(p, m.values, p.no_basis());
      const double captured = test::energy_of(p, m.values, found.basis), all = test::square_sum(m.values);
      const std::string name = str(spectrum.name, " ", p.rows, " x ", p.columns, ", rank ", p.rank);
      EXPECT_LE(test::orthonormality_error(p, found.basis), 2e-6) << name;
      EXPECT_GE(captured, 0.99 * m.top_energy(p.rank)) << name;
      EXPECT_LE(static_cast<double>(found.energy), captured / all + 1e-5) << name;
      EXPECT_GE(static_cast<double>(found.energy), 0.98 * captured / all) << name;
      EXPECT_TRUE(test::has_signs_of_a_basis(p, found.basis)) << name;
    }
  }
}

// Its singular values differ little, so that many directions compete.
TEST_P(FindBasisTest, OfNoiseTooItCapturesWhatTheExactBasisDoes) {
  BasisProblem p{300, 200, 40, SubspaceSide::right, SvdMethod::exact};
  const std::vector<float> g = Values(3).floats(p.rows * p.columns);
  const double exact = test::energy_of(p, g, find_basis(p, g, p.no_basis()).basis);
  p.method = GetParam();
  const FoundBasis found = find_basis(p, g, p.no_basis());
  EXPECT_GE(test::energy_of(p, g, found.basis), 0.99 * exact);
  EXPECT_LE(test::orthonormality_error(p, found.basis), 2e-6);
}

TEST_P(FindBasisTest, VectorsComeInTheOrderOfTheirEnergies) {
  const BasisProblem p = problem(0);
  const KnownMatrix m = test::known_matrix(p.rows, p.columns, test::kSpectra[2].value);
  const FoundBasis found = find_basis(p, m.values, p.no_basis());
  for (std::int64_t j = 0; j < p.rank; ++j)
    EXPECT_NEAR(test::energy_of(p, m.values, found.basis, j),
                m.s[static_cast<std::size_t>(j)] * m.s[static_cast<std::size_t>(j)], 0.02 * m.s[0] * m.s[0])
        << j;
}

TEST(FindBasisTest, ExactVectorsAreThoseOfTheMatrix) {
  for (const std::size_t i : {0, 1, 5}) {
    BasisProblem p = kBasisProblems[i];
    p.method = SvdMethod::exact;
    const KnownMatrix m = test::known_matrix(p.rows, p.columns, test::kSpectra[2].value);
    const FoundBasis found = find_basis(p, m.values, p.no_basis());
    const std::vector<double>& want = p.is_right() ? m.v : m.u;
    for (std::int64_t j = 0; j < p.rank; ++j) {
      double product = 0;
      for (std::int64_t k = 0; k < p.length(); ++k)
        product += want[static_cast<std::size_t>(j * p.length() + k)] *
                   static_cast<double>(found.basis[p.index(j, k)]);
      EXPECT_NEAR(std::fabs(product), 1.0, 1e-6) << i << ", vector " << j;
    }
  }
}

TEST_P(FindBasisTest, TheLastBasisIsAStartFromWhichTheNextIsFound) {
  const BasisProblem p = problem(0);
  const KnownMatrix m = test::known_matrix(p.rows, p.columns, test::kSpectra[1].value, 1),
                    other = test::known_matrix(p.rows, p.columns, test::kSpectra[1].value, 9);
  const FoundBasis cold = find_basis(p, m.values, p.no_basis()), again = find_basis(p, m.values, cold.basis),
                   moved = find_basis(p, other.values, cold.basis);
  EXPECT_GE(test::energy_of(p, m.values, again.basis), 0.99 * m.top_energy(p.rank));
  EXPECT_GE(test::energy_of(p, other.values, moved.basis), 0.99 * other.top_energy(p.rank));
}

// Little of the gradient is in the previous subspace, and products with it stay there.
TEST_P(FindBasisTest, DirectionsOrthogonalToThePreviousBasisAreFound) {
  const BasisProblem p = with_method({30, 20, 4, SubspaceSide::right});
  std::vector<float> previous = p.no_basis(), g(600);
  for (std::int64_t j = 0; j < p.rank; ++j) previous[p.index(j, j)] = 1.0f;
  for (std::size_t j = 0; j < 4; ++j) g[j * 20 + j] = 0.01f;
  for (std::size_t i = 4; i < 30; ++i)
    for (std::size_t k = 10; k < 20; ++k) g[i * 20 + k] = static_cast<float>((i % 3 + 1) * (k % 4 + 1));
  const FoundBasis found = find_basis(p, g, previous);
  EXPECT_GE(test::energy_of(p, g, found.basis), 0.999 * test::square_sum(g));
}

TEST_P(FindBasisTest, OfAZeroMatrixThePreviousBasisStays) {
  for (const std::size_t i : {0, 1}) {
    const BasisProblem p = problem(i);
    const std::vector<float> zeros(static_cast<std::size_t>(p.rows * p.columns)),
        noise = Values(2).floats(p.rows * p.columns);
    const FoundBasis before = find_basis(p, noise, p.no_basis()), after = find_basis(p, zeros, before.basis),
                     first = find_basis(p, zeros, p.no_basis());
    EXPECT_LE(test::relative_error(after.basis, before.basis), 1e-5);
    EXPECT_EQ(after.energy, 1.0f);
    EXPECT_LE(test::orthonormality_error(p, first.basis), 2e-6);
  }
}

TEST_P(FindBasisTest, ANaNOrAnInfMakesTheBasisOfItsPartNaN) {
  const LoraParts parts = {{{{0, 10, 2}, {10, 20, 3}}}, 2};
  for (const float bad : {std::nanf(""), HUGE_VALF}) {
    std::vector<float> values = Values(1).floats(30 * 12);
    values[15 * 12 + 3] = bad;
    Tensor g({30, 12}, values), previous({5, 12}, std::vector<float>(60)), basis = Tensor::unwritten({5, 12}),
                                                                           energy = Tensor::unwritten({2});
    test::Workspace space(find_basis_workspace_bytes(parts, 12, SubspaceSide::right, DType::f32));
    find_basis_host({g.view(), previous.view(), basis.view(), energy.view(), space.view(), parts,
                     SubspaceSide::right, GetParam()},
                    *test::pool());
    const std::vector<float> found = basis.values();
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(std::isnan(found[i]), i >= 24) << i;
    EXPECT_FALSE(std::isnan(energy.values()[0]));
    EXPECT_TRUE(std::isnan(energy.values()[1]));
  }
}

TEST_P(FindBasisTest, EachPartHasTheBitsOfAMatrixOfItsOwn) {
  const LoraParts parts = {{{{0, 30, 4}, {35, 20, 2}, {55, 15, 6}}}, 3};
  const std::int64_t columns = 25;
  const std::vector<float> values = Values(4).floats(70 * columns);
  for (const SubspaceSide side : {SubspaceSide::right, SubspaceSide::left}) {
    const std::int64_t elems = side == SubspaceSide::right ? 12 * columns : 30 * 4 + 20 * 2 + 15 * 6;
    Tensor g({70, columns}, values), previous({elems}, std::vector<float>(static_cast<std::size_t>(elems))),
        basis = Tensor::unwritten({elems}), energy = Tensor::unwritten({3});
    test::Workspace space(find_basis_workspace_bytes(parts, columns, side, DType::f32));
    find_basis_host(
        {g.view(), previous.view(), basis.view(), energy.view(), space.view(), parts, side, GetParam()},
        *test::pool());
    std::vector<float> want;
    for (const LoraPart& part : parts.all()) {
      const auto first = values.begin() + part.first_row * columns;
      const BasisProblem p{part.rows, columns, part.rank, side, GetParam()};
      const std::vector<float> own = find_basis(p, {first, first + part.rows * columns}, p.no_basis()).basis;
      want.insert(want.end(), own.begin(), own.end());
    }
    EXPECT_EQ(test::differing_bits(basis.values(), want), 0u);
  }
}

TEST_P(FindBasisTest, BitsDoNotDependOnTheNumberOfThreads) {
  const BasisProblem p = with_method({300, 200, 40, SubspaceSide::right});
  const std::vector<float> g = Values(3).floats(p.rows * p.columns);
  const FoundBasis one = find_basis(p, g, p.no_basis(), 1), three = find_basis(p, g, p.no_basis(), 3);
  EXPECT_EQ(test::differing_bits(one.basis, three.basis), 0u);
  EXPECT_EQ(one.energy, three.energy);
}

// Powers of two change no bit, as long as squares stay in the range of f32.
TEST_P(FindBasisTest, TheScaleOfTheGradientDoesNotMatter) {
  const BasisProblem p = problem(0);
  const KnownMatrix m = test::known_matrix(p.rows, p.columns, test::kSpectra[1].value);
  const FoundBasis want = find_basis(p, m.values, p.no_basis());
  for (const int exponent : {-50, 50}) {
    std::vector<float> scaled = m.values;
    for (float& x : scaled) x = std::ldexp(x, exponent);
    EXPECT_EQ(test::differing_bits(find_basis(p, scaled, p.no_basis()).basis, want.basis), 0u) << exponent;
  }
}

TEST_P(FindBasisTest, AGradientOf16BitsHasTheBitsOfItsValuesInF32) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const std::size_t i : {0, 1}) {
      BasisProblem p = problem(i);
      const KnownMatrix m = test::known_matrix(p.rows, p.columns, test::kSpectra[1].value);
      const std::vector<float> rounded = Tensor({p.rows, p.columns}, m.values, dtype).values(),
                               want = find_basis(p, rounded, p.no_basis()).basis;
      p.dtype = dtype;
      EXPECT_EQ(test::differing_bits(find_basis(p, m.values, p.no_basis()).basis, want), 0u);
    }
}

// 16-bit rows are widened in panels, of which these have two. The second has little, in a direction of its
// own.
TEST(FindBasisTest, RowsOfSeveralPanelsAreOneMatrix) {
  const std::int64_t columns = 32768, rows = 515, first_panel = 512;
  std::vector<float> u = Values(1).floats(rows), v = Values(2).floats(2 * columns),
                     g(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < columns; ++k)
      g[static_cast<std::size_t>(i * columns + k)] =
          u[static_cast<std::size_t>(i)] * (i < first_panel
                                                ? v[static_cast<std::size_t>(k)]
                                                : 0.1f * v[static_cast<std::size_t>(columns + k)]);
  for (const SubspaceSide side : {SubspaceSide::right, SubspaceSide::left}) {
    const BasisProblem p{rows, columns, 2, side, SvdMethod::subspace, DType::bf16};
    const FoundBasis found = find_basis(p, g, p.no_basis());
    EXPECT_LE(test::orthonormality_error(p, found.basis), 2e-6);
    EXPECT_GE(test::energy_of(p, g, found.basis), 0.999 * test::square_sum(g));
    EXPECT_NEAR(found.energy, 1.0f, 1e-3f);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, FindBasisTest, ::testing::Values(SvdMethod::subspace, SvdMethod::exact),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(FindBasisTest, ArgumentsThatDoNotFitAreRefused) {
  test::InlineBackend backend, gpu(DeviceKind::cuda);
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor g({8, 5}, Values(1).floats(40)), basis({2, 5}, std::vector<float>(10)), energy({1}, {0}),
      wide({8, 5}, std::vector<float>(40));
  test::Workspace space(1 << 16), small(8);
  const auto refused = [&](Backend& on, const LoraParts& parts, TensorView previous, BufferView workspace,
                           SvdMethod method = SvdMethod::subspace) {
    return std::string(find_basis_async(on, stream,
                                        {g.view(), previous, basis.view(), energy.view(), workspace, parts,
                                         SubspaceSide::right, method})
                           .message());
  };
  const LoraParts parts = {{{{0, 8, 2}}}, 1};
  EXPECT_EQ(refused(backend, parts, basis.view(), space.view()), "ok");
  EXPECT_THAT(refused(backend, {{{{0, 8, 6}}}, 1}, basis.view(), space.view()),
              HasSubstr("a part of 8 rows of 5 values has rank 6"));
  EXPECT_THAT(refused(backend, {{{{5, 4, 2}}}, 1}, basis.view(), space.view()),
              HasSubstr("rows 5 to 9 of 8"));
  EXPECT_THAT(refused(backend, parts, wide.view(), space.view()), HasSubstr("previous is f32 [8, 5]"));
  EXPECT_THAT(refused(backend, parts, basis.view(), small.view()), HasSubstr("workspace has 8 bytes"));
  EXPECT_THAT(refused(gpu, parts, basis.view(), space.view(), SvdMethod::exact),
              HasSubstr("the exact method runs on the host"));
}

}  // namespace
}  // namespace strata::kernels
