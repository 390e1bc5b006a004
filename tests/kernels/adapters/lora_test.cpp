#include <strata/kernels/lora.h>

#include <gmock/gmock.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

struct LoraProblem {
  std::int64_t rows, columns;
  LoraParts parts;
  std::int64_t ranks() const {
    std::int64_t n = 0;
    for (const LoraPart& part : parts.all()) n += part.rank;
    return n;
  }
  std::int64_t elems() const {
    std::int64_t n = 0;
    for (const LoraPart& part : parts.all()) n += part.rows * part.rank;
    return n;
  }
  /// Calls f(row, column of y, column of u, element of b) for every element of every B.
  template <class F>
  void each(const F& f) const {
    std::int64_t u = 0, b = 0;
    for (const LoraPart& part : parts.all()) {
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t i = 0; i < part.rows; ++i)
          for (std::int64_t j = 0; j < part.rank; ++j)
            f(static_cast<std::size_t>(t * columns + part.first_row + i),
              static_cast<std::size_t>(t * ranks() + u + j), static_cast<std::size_t>(b + i * part.rank + j));
      u += part.rank;
      b += part.rows * part.rank;
    }
  }
};

// Queries, keys and values of which the keys are not adapted; one part; parts of different ranks; no rows.
const LoraProblem kProblems[] = {{5, 12, {{{{0, 6, 2}, {9, 3, 2}}}, 2}},
                                 {130, 300, {{{{0, 300, 16}}}, 1}},
                                 {7, 40, {{{{0, 10, 3}, {10, 20, 1}, {30, 10, 8}}}, 3}},
                                 {0, 8, {{{{4, 4, 2}}}, 1}}};

class LoraTest : public ::testing::TestWithParam<DType> {
 protected:
  Tensor tensor(Shape shape, int seed) const {
    return Tensor(shape, test::Values(seed).floats(shape.n_elems()), GetParam());
  }
  Tensor unwritten(Shape shape) const { return Tensor::unwritten(shape, GetParam()); }
  double tolerance() const {
    return GetParam() == DType::f32 ? 1e-6 : GetParam() == DType::f16 ? 1e-3 : 8e-3;
  }
};

TEST_P(LoraTest, FollowsTheF64Reference) {
  const auto pool = test::pool();
  for (const LoraProblem& p : kProblems) {
    Tensor base = tensor({p.rows, p.columns}, 1), u = tensor({p.rows, p.ranks()}, 2),
           b = tensor({p.elems()}, 3), dy = tensor({p.rows, p.columns}, 4);
    Tensor y = unwritten({p.rows, p.columns}), du = unwritten({p.rows, p.ranks()}),
           db = unwritten({p.elems()});
    lora_up_host({base.view(), u.view(), b.view(), y.view(), p.parts}, *pool);
    lora_up_backward_input_host({dy.view(), b.view(), du.view(), p.parts}, *pool);
    lora_up_backward_weight_host({dy.view(), u.view(), db.view(), p.parts}, *pool);
    const auto us = u.values(), bs = b.values(), dys = dy.values();
    std::vector<double> want_y = test::widen(base.values()), want_du(us.size()), want_db(bs.size());
    p.each([&](std::size_t at_y, std::size_t at_u, std::size_t at_b) {
      want_y[at_y] += static_cast<double>(us[at_u]) * bs[at_b];
      want_du[at_u] += static_cast<double>(dys[at_y]) * bs[at_b];
      want_db[at_b] += static_cast<double>(dys[at_y]) * us[at_u];
    });
    EXPECT_LE(test::relative_error(y.values(), want_y), tolerance()) << p.rows;
    EXPECT_LE(test::relative_error(du.values(), want_du), tolerance()) << p.rows;
    EXPECT_LE(test::relative_error(db.values(), want_db), tolerance()) << p.rows;
  }
}

TEST_P(LoraTest, InPlaceGivesTheSameBitsAndOtherColumnsStay) {
  const auto pool = test::pool();
  for (const LoraProblem& p : kProblems) {
    Tensor base = tensor({p.rows, p.columns}, 1), u = tensor({p.rows, p.ranks()}, 2),
           b = tensor({p.elems()}, 3);
    const std::vector<float> before = base.values();
    Tensor y = unwritten({p.rows, p.columns});
    lora_up_host({base.view(), u.view(), b.view(), y.view(), p.parts}, *pool);
    lora_up_host({base.view(), u.view(), b.view(), base.view(), p.parts}, *pool);
    EXPECT_EQ(test::differing_bits(base.values(), y.values()), 0u);
    std::vector<bool> adapted(before.size());
    p.each([&](std::size_t at_y, std::size_t, std::size_t) { adapted[at_y] = true; });
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(adapted[i] || before[i] == y.values()[i]) << i;
  }
}

TEST_P(LoraTest, GradientsAreAddedToTheF32Sum) {
  const auto pool = test::pool();
  const LoraProblem& p = kProblems[2];
  Tensor u = tensor({p.rows, p.ranks()}, 2), dy = tensor({p.rows, p.columns}, 4);
  Tensor once = Tensor::unwritten({p.elems()}), sum({p.elems()}, test::Values(5).floats(p.elems()));
  const std::vector<float> before = sum.values();
  lora_up_backward_weight_host({dy.view(), u.view(), once.view(), p.parts}, *pool);
  lora_up_backward_weight_host({dy.view(), u.view(), sum.view(), p.parts, true}, *pool);
  EXPECT_LE(test::relative_error(sum.values(),
                                 test::reference::add(test::widen(once.values()), test::widen(before))),
            1e-6);
}

TEST_P(LoraTest, BitsDoNotDependOnTheNumberOfThreads) {
  const LoraProblem& p = kProblems[1];
  const auto run = [&](int threads) {
    Tensor base = tensor({p.rows, p.columns}, 1), u = tensor({p.rows, p.ranks()}, 2),
           b = tensor({p.elems()}, 3);
    Tensor du = unwritten({p.rows, p.ranks()}), db = unwritten({p.elems()});
    const auto pool = test::pool(threads);
    lora_up_host({base.view(), u.view(), b.view(), base.view(), p.parts}, *pool);
    lora_up_backward_input_host({base.view(), b.view(), du.view(), p.parts}, *pool);
    lora_up_backward_weight_host({base.view(), u.view(), db.view(), p.parts}, *pool);
    return test::joined({base.values(), du.values(), db.values()});
  };
  EXPECT_EQ(test::differing_bits(run(1), run(3)), 0u);
}

INSTANTIATE_TEST_SUITE_P(DTypes, LoraTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(LoraTest, PartsThatDoNotFitAreRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor base({2, 8}, std::vector<float>(16)), u({2, 2}, std::vector<float>(4)),
      b({8}, std::vector<float>(8));
  const auto refused = [&](const LoraParts& parts) {
    return std::string(
        lora_up_async(backend, stream, {base.view(), u.view(), b.view(), base.view(), parts}).message());
  };
  EXPECT_THAT(refused({{{{5, 4, 2}}}, 1}), ::testing::HasSubstr("rows 5 to 9 of 8"));
  EXPECT_THAT(refused({{{{0, 4, 1}, {3, 4, 1}}}, 2}),
              ::testing::HasSubstr("after a part that ends at row 4"));
  EXPECT_THAT(refused({{}, 0}), ::testing::HasSubstr("there must be 1 to 3"));
  EXPECT_THAT(refused({{{{0, 4, 3}}}, 1}), ::testing::HasSubstr("u is f32 [2, 2]"));
  EXPECT_THAT(refused({{{{0, 3, 2}}}, 1}), ::testing::HasSubstr("with 6 elements"));
}

}  // namespace
}  // namespace strata::kernels
