#include <strata/kernels/linear.h>

#include <cstdio>

#include <unistd.h>

#include <gmock/gmock.h>

#include <strata/kernels/cublaslt_algorithms.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

struct LinearSize {
  std::int64_t rows, n, k;
};
struct LinearProblem {
  explicit LinearProblem(LinearSize s)
      : rows(s.rows),
        n(s.n),
        k(s.k),
        x(test::Values(1).floats(rows * k)),
        w(test::Values(2).floats(n * k)),
        b(test::Values(3).floats(n)),
        dy(test::Values(4).floats(rows * n)) {}
  std::int64_t rows, n, k;
  std::vector<float> x, w, b, dy;
  test::reference::LinearGrads grads() const {
    return test::reference::linear_backward(test::widen(x), test::widen(w), test::widen(dy),
                                            static_cast<std::size_t>(rows), static_cast<std::size_t>(n),
                                            static_cast<std::size_t>(k));
  }
};

class LinearTest : public ::testing::TestWithParam<LinearSize> {};

TEST_P(LinearTest, ForwardFollowsTheF64Reference) {
  const LinearProblem p(GetParam());
  Tensor x({p.rows, p.k}, p.x), w({p.n, p.k}, p.w), b({p.n}, p.b), y = Tensor::unwritten({p.rows, p.n});
  linear_forward_host({x.view(), w.view(), b.view(), y.view()}, *test::pool());
  const auto want = test::reference::linear_forward(
      test::widen(p.x), test::widen(p.w), test::widen(p.b), static_cast<std::size_t>(p.rows),
      static_cast<std::size_t>(p.n), static_cast<std::size_t>(p.k));
  EXPECT_LE(test::relative_error(y.values(), want), 1e-6);
}

TEST_P(LinearTest, BackwardFollowsTheF64Reference) {
  const LinearProblem p(GetParam());
  const auto pool = test::pool();
  Tensor x({p.rows, p.k}, p.x), w({p.n, p.k}, p.w), dy({p.rows, p.n}, p.dy);
  Tensor dx = Tensor::unwritten({p.rows, p.k}), dw = Tensor::unwritten({p.n, p.k}),
         db = Tensor::unwritten({p.n});
  linear_backward_input_host({dy.view(), w.view(), dx.view()}, *pool);
  linear_backward_weight_host({dy.view(), x.view(), dw.view()}, *pool);
  test::Workspace workspace(linear_backward_bias_workspace_bytes(p.rows, p.n));
  linear_backward_bias_host({.dy = dy.view(), .db = db.view(), .workspace = workspace.view()}, *pool);
  const auto want = p.grads();
  EXPECT_LE(test::relative_error(dx.values(), want.dx), 1e-6);
  EXPECT_LE(test::relative_error(dw.values(), want.dw), 1e-6);
  EXPECT_LE(test::relative_error(db.values(), want.db), 1e-6);
}

TEST_P(LinearTest, AccumulationAddsToThePreviousValues) {
  const LinearProblem p(GetParam());
  const auto pool = test::pool();
  Tensor x({p.rows, p.k}, p.x), w({p.n, p.k}, p.w), dy({p.rows, p.n}, p.dy);
  Tensor dx({p.rows, p.k}, p.x), dw({p.n, p.k}, p.w), db({p.n}, p.b);
  linear_backward_input_host({dy.view(), w.view(), dx.view(), true}, *pool);
  linear_backward_weight_host({dy.view(), x.view(), dw.view(), true}, *pool);
  test::Workspace workspace(linear_backward_bias_workspace_bytes(p.rows, p.n));
  linear_backward_bias_host({dy.view(), db.view(), true, workspace.view()}, *pool);
  const auto want = p.grads();
  EXPECT_LE(test::relative_error(dx.values(), test::reference::add(want.dx, test::widen(p.x))), 1e-6);
  EXPECT_LE(test::relative_error(dw.values(), test::reference::add(want.dw, test::widen(p.w))), 1e-6);
  EXPECT_LE(test::relative_error(db.values(), test::reference::add(want.db, test::widen(p.b))), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearTest,
                         ::testing::Values(LinearSize{0, 3, 4}, LinearSize{1, 1, 1}, LinearSize{2, 3, 1},
                                           LinearSize{5, 7, 9}, LinearSize{130, 129, 33},
                                           LinearSize{257, 65, 400}, LinearSize{300, 520, 48},
                                           LinearSize{1100, 300, 40}));

TEST(LinearTest, AnEmptyInnerExtentGivesTheBias) {
  Tensor x({2, 0}, {}), w({3, 0}, {}), b({3}, {1.0f, 2.0f, 3.0f}), y = Tensor::unwritten({2, 3});
  linear_forward_host({x.view(), w.view(), b.view(), y.view()}, *test::pool());
  EXPECT_EQ(y.values(), (std::vector<float>{1.0f, 2.0f, 3.0f, 1.0f, 2.0f, 3.0f}));
}

TEST(LinearTest, MisalignedOperandsGiveTheSameBits) {
  const LinearProblem p({200, 300, 77});
  const auto run = [&](std::size_t offset) {
    std::vector<float> x(p.x.size() + offset), w(p.w.size() + offset),
        y(static_cast<std::size_t>(p.rows * p.n) + offset);
    std::copy(p.x.begin(), p.x.end(), x.begin() + static_cast<std::ptrdiff_t>(offset));
    std::copy(p.w.begin(), p.w.end(), w.begin() + static_cast<std::ptrdiff_t>(offset));
    const auto at = [&](std::vector<float>& v, Shape shape) {
      return TensorView{reinterpret_cast<std::byte*>(v.data() + offset), shape, DType::f32};
    };
    linear_forward_host({at(x, {200, 77}), at(w, {300, 77}), {}, at(y, {200, 300})}, *test::pool());
    return std::vector<float>(y.begin() + static_cast<std::ptrdiff_t>(offset), y.end());
  };
  const auto aligned = run(0);
  for (const std::size_t offset : {1u, 3u, 8u})
    EXPECT_EQ(test::differing_bits(run(offset), aligned), 0u) << offset;
}

std::int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long long total = 0, resident = 0;
  const int got = std::fscanf(file, "%lld %lld", &total, &resident);
  std::fclose(file);
  return got == 2 ? resident * sysconf(_SC_PAGESIZE) : -1;
}

TEST(LinearTest, RepeatedGemmsRetainNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory aside";
#endif
  const LinearProblem p({256, 512, 128});
  const auto pool = test::pool();
  Tensor x({p.rows, p.k}, p.x), w({p.n, p.k}, p.w), y = Tensor::unwritten({p.rows, p.n});
  const auto run = [&](int times) {
    for (int i = 0; i < times; ++i) linear_forward_host({x.view(), w.view(), {}, y.view()}, *pool);
  };
  run(20);
  const std::int64_t before = resident_bytes();
  run(100);
  EXPECT_LE(resident_bytes() - before, 4 << 20);
}

TEST(CublasLtVersionTest, NamesTheLibraryWithItsVersionOrSaysThatThereIsNone) {
  EXPECT_THAT(cublaslt_version(), ::testing::MatchesRegex("no cuBLASLt|cuBLASLt [0-9]+\\.[0-9]+\\.[0-9]+"));
}

}  // namespace
}  // namespace strata::kernels
