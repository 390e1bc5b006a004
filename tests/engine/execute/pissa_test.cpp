#include <gtest/gtest.h>

#include "engine/execute/adapters.h"
#include "engine/execute/central_differences.h"

namespace strata {
namespace {

using test::TinyRun;
using test::reference::Vec;
using enum kernels::WeightFormat;

ProgramSet pissa_programs(const DecoderConfig& config, Recompute recompute = Recompute::none,
                          DType compute = DType::f32, kernels::WeightFormat base = full) {
  return test::adapted_programs(config, recompute, compute, base, test::LowRank::pissa);
}

// A and B, not A0 and B0.
bool is_trained(std::string_view name) {
  const std::size_t at = name.find(".lora_");
  return at != std::string_view::npos && name.substr(at).find('0') == std::string_view::npos;
}

/// A part of a matrix W [rows, columns] and its factors at the start.
struct PrincipalPart {
  std::size_t rows, columns, rank;
  Vec w, a, b;
  double scale;

  /// W v - scale B A v, the residual times a vector, or its transpose.
  Vec residual_times(const Vec& v) const {
    Vec au(rank), y(rows);
    for (std::size_t r = 0; r < rank; ++r)
      for (std::size_t k = 0; k < columns; ++k) au[r] += a[r * columns + k] * v[k];
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t k = 0; k < columns; ++k) y[i] += w[i * columns + k] * v[k];
      for (std::size_t r = 0; r < rank; ++r) y[i] -= scale * b[i * rank + r] * au[r];
    }
    return y;
  }
  Vec residual_transposed_times(const Vec& u) const {
    Vec bu(rank), x(columns);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t r = 0; r < rank; ++r) bu[r] += b[i * rank + r] * u[i];
    for (std::size_t k = 0; k < columns; ++k) {
      for (std::size_t i = 0; i < rows; ++i) x[k] += w[i * columns + k] * u[i];
      for (std::size_t r = 0; r < rank; ++r) x[k] -= scale * a[r * columns + k] * bu[r];
    }
    return x;
  }
};

double norm_of(const Vec& v) {
  double squares = 0;
  for (const double value : v) squares += value * value;
  return std::sqrt(squares);
}

/// The largest singular value of the residual, by power iteration.
double largest_of_residual(const PrincipalPart& part) {
  Vec v(part.columns);
  for (std::size_t k = 0; k < v.size(); ++k) v[k] = std::sin(static_cast<double>(3 * k + 1));
  double largest = 0;
  for (int i = 0; i < 300; ++i) {
    v = part.residual_transposed_times(part.residual_times(v));
    largest = std::sqrt(norm_of(v));
    for (double& value : v) value /= largest * largest;
  }
  return largest;
}

/// The inner product of vectors p and q of `n` elements each: vector p begins at p * `first`, with elements
/// `step` apart.
double product_of(const Vec& x, std::size_t p, std::size_t q, std::size_t n, std::size_t first,
                  std::size_t step) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += x[p * first + i * step] * x[q * first + i * step];
  return sum;
}

// The rows of A are orthogonal, and so are the columns of B. Their squared norms times s are the singular
// values, in descending order, and none of the residual is above the last of them. Only the principal part is
// like that.
void expect_principal(const PrincipalPart& part, double tolerance, const std::string& where) {
  double last = 0, first = 0;
  for (std::size_t p = 0; p < part.rank; ++p)
    for (std::size_t q = 0; q <= p; ++q) {
      const double in_a = part.scale * product_of(part.a, p, q, part.columns, part.columns, 1);
      const double in_b = part.scale * product_of(part.b, p, q, part.rows, 1, part.rank);
      if (p == 0) first = in_a;
      EXPECT_NEAR(in_a, in_b, tolerance * first) << where;
      if (p != q) {
        EXPECT_NEAR(in_a, 0, tolerance * first) << where;
        continue;
      }
      EXPECT_LE(in_a, p == 0 ? first : last * (1 + tolerance)) << where;
      last = in_a;
    }
  EXPECT_GT(last, 0) << where;
  EXPECT_LE(largest_of_residual(part), last * (1 + tolerance)) << where;
}

std::vector<PrincipalPart> parts_of(const RunPlan& plan, const test::StateTensors& states,
                                    const LoraGroup& group) {
  const std::vector<float> w = test::values_of(plan, group.weight, states.find(group.weight)->second);
  const std::vector<float>&a = states.find(group.a)->second, &b = states.find(group.b)->second;
  const auto columns = std::ssize(a) / group.ranks();
  std::vector<PrincipalPart> parts;
  auto next_a = a.begin(), next_b = b.begin();
  for (const LoraPart& part : group.parts.all()) {
    const auto first = w.begin() + part.first_row * columns;
    const auto end_a = next_a + part.rank * columns, end_b = next_b + part.rows * part.rank;
    parts.push_back({static_cast<std::size_t>(part.rows), static_cast<std::size_t>(columns),
                     static_cast<std::size_t>(part.rank), Vec(first, first + part.rows * columns),
                     Vec(next_a, end_a), Vec(next_b, end_b), static_cast<double>(group.scale)});
    next_a = end_a;
    next_b = end_b;
  }
  return parts;
}

class PissaRunTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  const DecoderConfig config = test::tiny_of_family(GetParam());
};

TEST_P(PissaRunTest, AAndBStartAsThePrincipalPartsOfTheBasesRows) {
  for (const DType compute : {DType::f32, DType::bf16})
    for (const kernels::WeightFormat base : {full, int8, nf4_dq}) {
      TinyRun run(must(Engine::plan(pissa_programs(config, Recompute::none, compute, base), {})));
      must(run.engine->initialize(5));
      const test::StateTensors states = test::states_of(*run.engine, Payload::param);
      for (const LoraGroup& group : test::adapters_of(config, test::LowRank::pissa)) {
        const std::string where = str(group.a, " ", to_string(compute), " ", to_string(base));
        EXPECT_EQ(states.find(group.a0)->second, states.find(group.a)->second) << where;
        EXPECT_EQ(states.find(group.b0)->second, states.find(group.b)->second) << where;
        for (const PrincipalPart& part : parts_of(*run.plan, states, group))
          expect_principal(part, compute == DType::f32 ? 1e-4 : 2e-2, where);
      }
    }
}

// A0 and B0 are constants, as the rest of the base is.
TEST_P(PissaRunTest, EveryGradientIsTheCentralDifferenceOfTheLossInDouble) {
  const ProgramSet programs = pissa_programs(config);
  const auto first = test::first_gradients(programs, test::random_values);
  for (const Recompute recompute : {Recompute::selective, Recompute::full})
    ASSERT_EQ(first.gradients,
              test::first_gradients(pissa_programs(config, recompute), test::random_values).gradients)
        << to_string(recompute);
  EXPECT_EQ(first.gradients.size(), 2u * 2u * 5u);  // A and B, layers, groups of a layer
  test::expect_central_differences(test::forward_of_first_batch(programs[ProgramRole::eval]), first);
}

// The adapter changes nothing up to rounding: s B A is added, and s B0 A0, which has the same bits, is
// subtracted.
TEST_P(PissaRunTest, TheModelStartsAsTheBase) {
  const auto loss = [&](const ProgramSet& programs) {
    TinyRun run(must(Engine::plan(programs, {})));
    must(run.engine->initialize(5));
    return run.train(1)[0];
  };
  for (const auto& [compute, tolerance] : {std::pair{DType::f32, 1e-6f}, {DType::bf16, 1e-2f}}) {
    const float want = loss(test::adapted_programs(config, Recompute::none, compute));
    EXPECT_NEAR(loss(pissa_programs(config, Recompute::none, compute)), want, tolerance * want);
  }
}

TEST_P(PissaRunTest, AStepChangesEveryAAndBAndNothingElse) {
  TinyRun run(must(Engine::plan(pissa_programs(config, Recompute::full, DType::bf16), {})));
  must(run.engine->initialize(5));
  const test::StateTensors before = test::states_of(*run.engine, Payload::param);
  run.train(1);
  for (const auto& [name, values] : test::states_of(*run.engine, Payload::param))
    EXPECT_EQ(values != before.find(name)->second, is_trained(name)) << name;
}

TEST_P(PissaRunTest, TrainsOverAQuantizedBaseAsOverItsDequantizedValues) {
  test::expect_losses_of_the_dequantized_base(config, test::LowRank::pissa);
}

INSTANTIATE_TEST_SUITE_P(Families, PissaRunTest, ::testing::ValuesIn(test::kFamilyKinds),
                         [](const auto& test_case) { return std::string(test_case.param); });

TEST(PissaStepTest, EveryModeAndPlacementGivesTheBitsOfTheSerialStepOnTheDevice) {
  test::expect_bits_of_the_serial_step(test::LowRank::pissa);
}

TEST(PissaStartTest, AMatrixThatIsNotFiniteIsNamed) {
  TinyRun run(must(Engine::plan(pissa_programs(test::tiny_of_family("gpt2")), {})));
  const Status status =
      run.engine->initialize(5, [](const StatePiece& piece, std::span<float> values) -> Result<bool> {
        if (piece.name != "layers.1.mlp_in.weight") return false;
        std::fill(values.begin(), values.end(), std::nanf(""));
        return true;
      });
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("the principal part of layers.1.mlp_in.weight, rows 0 to 48"),
            std::string_view::npos)
      << status.message();
}

}  // namespace
}  // namespace strata
