#include <strata/kernels/experts/expert_linear.h>

#include <cmath>

#include <gmock/gmock.h>

#include <strata/kernels/bf16_gemm.h>

#include "kernels/experts/expert_problem.h"

namespace strata::kernels {
namespace {

using test::ExpertProblem;
using test::Tensor;
using test::Values;

/// How products are stored and computed: bf16 also with operands widened to f32.
struct ExpertStorage {
  const char* name;
  DType dtype;
  bool widened;
};
void PrintTo(const ExpertStorage& s, std::ostream* out) { *out << s.name; }

class ExpertLinearTest : public ::testing::TestWithParam<ExpertStorage> {
 protected:
  void SetUp() override { force_widened_bf16_gemm(GetParam().widened); }
  void TearDown() override { force_widened_bf16_gemm(false); }
  DType dtype() const { return GetParam().dtype; }
  double tolerance() const { return dtype() == DType::f32 ? 1e-6 : dtype() == DType::f16 ? 1e-3 : 5e-3; }

  /// Experts without rows, with one, with a panel and a row more or less, and with all rows; shapes of one
  /// tile and of several, whose last has few columns.
  std::vector<ExpertProblem> problems() const {
    return {{{3, 0, 64, 65, 1, 63, 0}, 70, 33, dtype()},
            {{0, 0, 300, 0}, 530, 40, dtype()},
            {{5}, 1, 1, dtype()},
            {{130, 20}, 40, 700, dtype()},
            {{0, 0}, 8, 8, dtype()},
            {{1100, 0, 5}, 9, 17, dtype()}};
  }
};

TEST_P(ExpertLinearTest, ForwardFollowsTheF64Reference) {
  for (const ExpertProblem& p : problems())
    for (const bool has_bias : {false, true})
      EXPECT_LE(test::relative_error(p.forward(p.x(), has_bias, p.experts()), p.want_forward(has_bias)),
                tolerance())
          << p.n << " x " << p.k;
}

TEST_P(ExpertLinearTest, InputGradientFollowsTheF64Reference) {
  for (const ExpertProblem& p : problems())
    EXPECT_LE(test::relative_error(p.backward_input(p.dy(), p.experts()), p.want_backward_input()),
              tolerance())
        << p.n << " x " << p.k;
}

TEST_P(ExpertLinearTest, GradientsOfParametersFollowTheF64Reference) {
  for (const ExpertProblem& p : problems()) {
    EXPECT_LE(test::relative_error(p.backward_weight(dtype(), p.experts()), p.want_backward_weight(false)),
              tolerance())
        << p.n << " x " << p.k;
    for (const bool accumulate : {false, true})
      EXPECT_LE(test::relative_error(p.backward_weight(DType::f32, p.experts(), 2, accumulate),
                                     p.want_backward_weight(accumulate)),
                2e-6)
          << p.n << " x " << p.k;
  }
}

TEST_P(ExpertLinearTest, AnExpertWithoutRowsHasGradientsOfZeros) {
  const ExpertProblem p{{0, 2, 0}, 5, 3, dtype()};
  const std::vector<float> got = p.backward_weight(dtype(), 3);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t expert = i < 45 ? i / 15 : (i - 45) / 5;
    EXPECT_EQ(got[i] != 0.0f, expert == 1) << i;
  }
}

TEST_P(ExpertLinearTest, AnExpertWithoutRowsAddsNothing) {
  const ExpertProblem p{{0, 2, 0}, 5, 3, dtype()};
  const std::vector<float> got = p.backward_weight(DType::f32, 3, 2, true), before = p.w().values();
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 15, before.begin()));
  EXPECT_TRUE(std::equal(got.begin() + 30, got.begin() + 45, before.begin() + 30));
}

TEST_P(ExpertLinearTest, NeitherThreadsNorBlocksChangeABit) {
  for (const ExpertProblem& p : problems()) {
    const auto forward = p.forward(p.x(), true, p.experts(), 1),
               dx = p.backward_input(p.dy(), p.experts(), 1), dw = p.backward_weight(dtype(), p.experts(), 1);
    for (const std::int64_t of_block : {1, 2, 3}) {
      EXPECT_EQ(test::differing_bits(p.forward(p.x(), true, of_block, 3), forward), 0u);
      EXPECT_EQ(test::differing_bits(p.backward_input(p.dy(), of_block, 3), dx), 0u);
      EXPECT_EQ(test::differing_bits(p.backward_weight(dtype(), of_block, 3), dw), 0u);
    }
  }
}

TEST_P(ExpertLinearTest, ABlockWritesTheRowsOfItsExpertsAlone) {
  const ExpertProblem p{{3, 70, 5}, 20, 10, dtype()};
  Tensor x = p.x(), dy = p.dy(), w = p.w(), y = Tensor::unwritten({p.rows(), p.n}, dtype()),
         dx = Tensor::unwritten({p.rows(), p.k}, dtype());
  std::vector<std::int32_t> offsets = p.offsets();
  test::Workspace space(1 << 16);
  const TensorView middle = ExpertProblem::block_of(w, 1, 1);
  expert_linear_forward_host({x.view(), middle, {}, test::view(offsets), y.view(), 1, space.view()},
                             *test::pool());
  expert_linear_backward_input_host({dy.view(), middle, test::view(offsets), dx.view(), 1, space.view()},
                                    *test::pool());
  const std::vector<float> of_y = y.values(), of_dx = dx.values();
  for (std::int64_t r = 0; r < p.rows(); ++r) {
    const bool is_written = r >= 3 && r < 73;
    for (std::int64_t j = 0; j < p.n; ++j)
      EXPECT_EQ(!std::isnan(of_y[static_cast<std::size_t>(r * p.n + j)]), is_written) << "row " << r;
    for (std::int64_t i = 0; i < p.k; ++i)
      EXPECT_EQ(!std::isnan(of_dx[static_cast<std::size_t>(r * p.k + i)]), is_written) << "row " << r;
  }
}

// The row of expert 1 in every place: alone, among others, in any panel, before and behind rows of other
// experts.
TEST_P(ExpertLinearTest, ARowHasTheSameBitsWhateverOtherRowsThereAre) {
  for (const auto& [n, k] :
       {std::pair<std::int64_t, std::int64_t>{600, 520}, {96, 1024}, {1024, 96}, {17, 33}}) {
    const ExpertProblem alone{{0, 1, 0}, n, k, dtype()};
    const std::vector<float> of_x = alone.x().values(), of_dy = alone.dy().values(),
                             y = alone.forward(alone.x(), true, 3), dx = alone.backward_input(alone.dy(), 3);
    for (const auto& [counts, place] : {std::pair<std::vector<std::int64_t>, std::int64_t>{{7, 1, 3}, 0},
                                        {{0, 40, 0}, 0},
                                        {{0, 40, 0}, 1},
                                        {{0, 40, 0}, 37},
                                        {{90, 64, 0}, 63},
                                        {{2, 200, 70}, 64},
                                        {{2, 200, 70}, 150},
                                        {{2, 200, 70}, 199},
                                        {{70, 33, 90}, 32},
                                        {{0, 129, 1}, 128}}) {
      ExpertProblem among{counts, n, k, dtype()};
      const std::int64_t row = counts[0] + place;
      std::vector<float> xs = Values(77).floats(among.rows() * k, 9.0),
                         ds = Values(78).floats(among.rows() * n, 9.0);
      std::copy(of_x.begin(), of_x.end(), xs.begin() + row * k);
      std::copy(of_dy.begin(), of_dy.end(), ds.begin() + row * n);
      const auto all_y = among.forward(Tensor({among.rows(), k}, xs, dtype()), true, 3),
                 all_dx = among.backward_input(Tensor({among.rows(), n}, ds, dtype()), 3);
      const std::vector<float> got_y(all_y.begin() + row * n, all_y.begin() + (row + 1) * n),
          got_dx(all_dx.begin() + row * k, all_dx.begin() + (row + 1) * k);
      EXPECT_EQ(test::differing_bits(got_y, y), 0u)
          << n << " x " << k << ", row " << place << " of " << counts[1];
      EXPECT_EQ(test::differing_bits(got_dx, dx), 0u)
          << n << " x " << k << ", row " << place << " of " << counts[1];
    }
  }
}

TEST_P(ExpertLinearTest, ANaNOfAnotherExpertReachesNoRow) {
  const ExpertProblem p{{3, 5}, 20, 10, dtype()};
  std::vector<float> x = p.x().values();
  for (std::size_t i = 30; i < x.size(); ++i) x[i] = std::nanf("");
  const auto y = p.forward(Tensor({8, 10}, x, dtype()), false, 2);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i >= 60) << i;
}

// An expert's gradient depends on its rows alone, whatever the rows of other experts are.
TEST_P(ExpertLinearTest, AGradientHasTheSameBitsWhateverOtherExpertsHave) {
  const ExpertProblem alone{{70}, 30, 20, dtype()};
  const std::vector<float> of_x = alone.x().values(), of_dy = alone.dy().values(),
                           want = alone.backward_weight(dtype(), 1);
  ExpertProblem among{{9, 70, 3}, 30, 20, dtype()};
  std::vector<float> xs = Values(77).floats(among.rows() * 20), ds = Values(78).floats(among.rows() * 30);
  std::copy(of_x.begin(), of_x.end(), xs.begin() + 9 * 20);
  std::copy(of_dy.begin(), of_dy.end(), ds.begin() + 9 * 30);
  Tensor x({among.rows(), 20}, xs, dtype()), dy({among.rows(), 30}, ds, dtype()),
      dw = Tensor::unwritten({1, 30, 20}, dtype()), db = Tensor::unwritten({1, 30}, dtype());
  std::vector<std::int32_t> offsets = among.offsets();
  expert_linear_backward_weight_host({dy.view(), x.view(), test::view(offsets), dw.view(), 1}, *test::pool());
  expert_linear_backward_bias_host({dy.view(), test::view(offsets), db.view(), 1}, *test::pool());
  EXPECT_EQ(test::differing_bits(test::joined({dw.values(), db.values()}), want), 0u);
}

INSTANTIATE_TEST_SUITE_P(Storage, ExpertLinearTest,
                         ::testing::Values(ExpertStorage{"f32", DType::f32, false},
                                           ExpertStorage{"bf16", DType::bf16, false},
                                           ExpertStorage{"bf16_widened", DType::bf16, true},
                                           ExpertStorage{"f16", DType::f16, false}),
                         [](const auto& each) { return std::string(each.param.name); });

class ExpertLinearCheckTest : public ::testing::Test {
 protected:
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor x{{4, 3}, std::vector<float>(12)}, w{{2, 5, 3}, std::vector<float>(30)},
      y{{4, 5}, std::vector<float>(20)}, b{{2, 5}, std::vector<float>(10)},
      half{{2, 5, 3}, std::vector<float>(30), DType::bf16};
  std::vector<std::int32_t> offsets = {0, 1, 3, 4};
  test::Workspace space{1 << 12};
};

TEST_F(ExpertLinearCheckTest, ForwardRefusesWhatDoesNotFit) {
  const auto message = [&](const auto& change) {
    ExpertLinearForwardArgs args = {x.view(), w.view(), b.view(),    test::view(offsets),
                                    y.view(), 1,        space.view()};
    change(args);
    return std::string(expert_linear_forward_async(backend, stream, args).message());
  };
  using ::testing::HasSubstr;
  using Args = ExpertLinearForwardArgs;
  EXPECT_EQ(message([](Args&) {}), "ok");
  EXPECT_THAT(message([](Args& c) { c.first = 2; }), HasSubstr("w has the experts 2 to 4 of 3"));
  EXPECT_THAT(message([](Args& c) { c.first = -1; }), HasSubstr("w has the experts -1 to 1 of 3"));
  EXPECT_THAT(message([&](Args& c) { c.w = half.view(); }),
              HasSubstr("w is bf16 [2, 5, 3]; it must be f32 [2, 5, 3]"));
  EXPECT_THAT(message([](Args& c) { c.b.shape = {5}; }), HasSubstr("b is f32 [5]; it must be f32 [2, 5]"));
  EXPECT_THAT(message([](Args& c) {
                c.y.shape = {5, 4};
              }),
              HasSubstr("y is f32 [5, 4]; it must be f32, 4 rows of 4"));
  EXPECT_THAT(message([](Args& c) { c.offsets.dtype = DType::f32; }),
              HasSubstr("offsets is f32 [4]; it must be i32"));
  EXPECT_THAT(message([](Args& c) { c.workspace.bytes = 100; }),
              HasSubstr("workspace has 100 bytes; it needs 1524"));
}

TEST_F(ExpertLinearCheckTest, GradientsRefuseWhatDoesNotFit) {
  using ::testing::HasSubstr;
  EXPECT_THAT(
      std::string(expert_linear_backward_input_async(
                      backend, stream, {y.view(), w.view(), test::view(offsets), y.view(), 0, space.view()})
                      .message()),
      HasSubstr("w is f32 [2, 5, 3]; it must be f32 [2, 5, 5]"));
  Tensor x16({4, 3}, std::vector<float>(12), DType::bf16), y16({4, 5}, std::vector<float>(20), DType::bf16);
  EXPECT_THAT(
      std::string(expert_linear_backward_weight_async(
                      backend, stream, {y16.view(), x16.view(), test::view(offsets), half.view(), 0, true})
                      .message()),
      HasSubstr("dw is bf16; only an f32 gradient can be accumulated into"));
  EXPECT_THAT(std::string(expert_linear_backward_bias_async(
                              backend, stream, {y.view(), test::view(offsets), b.view(), 2, false})
                              .message()),
              HasSubstr("db has the experts 2 to 4 of 3"));
}

}  // namespace
}  // namespace strata::kernels
