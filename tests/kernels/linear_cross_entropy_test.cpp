#include <strata/kernels/linear_cross_entropy.h>

#include <algorithm>
#include <cmath>

#include <strata/runtime/str.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::reference::Vec;

struct HeadCase {
  std::int64_t rows, vocab, k;
  DType dtype;
  double softcap = 0;
};

/// Operands, and the loss and its gradients in f64.
struct HeadProblem {
  explicit HeadProblem(const HeadCase& c)
      : rows(c.rows),
        vocab(c.vocab),
        k(c.k),
        dtype(c.dtype),
        softcap(static_cast<float>(c.softcap)),
        x({rows, k}, test::Values(1).floats(rows * k, 2.0), dtype),
        w({vocab, k}, test::Values(2).floats(vocab * k, 2.0), dtype),
        targets(test::Values(3).below(rows, vocab)) {
    for (std::size_t t = 2; t < targets.size(); t += 5) targets[t] = -1;
    const auto n = static_cast<std::size_t>(rows), v = static_cast<std::size_t>(vocab),
               inner = static_cast<std::size_t>(k);
    const Vec xd = test::widen(x.values()), wd = test::widen(w.values());
    Vec logits = test::reference::linear_forward(xd, wd, {}, n, v, inner);
    for (double& logit : logits)
      if (c.softcap > 0) logit = c.softcap * std::tanh(logit / c.softcap);
    const auto forward = test::reference::cross_entropy_forward(logits, targets, v);
    losses = forward.losses;
    mean = forward.mean_loss;
    double counted = 0;
    for (const std::int32_t target : targets) counted += target >= 0;
    Vec dlogits = test::reference::cross_entropy_backward(logits, targets, forward.lse, v,
                                                          counted > 0 ? 1 / counted : 1);
    for (std::size_t i = 0; i < dlogits.size() && c.softcap > 0; ++i)
      dlogits[i] *= 1 - logits[i] / c.softcap * (logits[i] / c.softcap);
    dx.assign(n * inner, 0.0);
    dw.assign(v * inner, 0.0);
    for (std::size_t t = 0; t < n; ++t)
      for (std::size_t j = 0; j < v; ++j)
        for (std::size_t i = 0; i < inner; ++i) {
          dx[t * inner + i] += dlogits[t * v + j] * wd[j * inner + i];
          dw[j * inner + i] += dlogits[t * v + j] * xd[t * inner + i];
        }
  }
  LinearCrossEntropyArgs args(Tensor& losses_out, Tensor& mean_out, test::Workspace& workspace) {
    return {x.view(), w.view(), test::view(targets), losses_out.view(), mean_out.view(), {}, workspace.view(),
            {},       softcap};
  }
  std::size_t workspace_bytes() const { return linear_cross_entropy_workspace_bytes(rows, vocab, dtype); }
  std::int64_t rows, vocab, k;
  DType dtype;
  float softcap;
  Tensor x, w;
  std::vector<std::int32_t> targets;
  Vec losses, dx, dw;
  double mean = 0;
};

class LinearCrossEntropyTest : public ::testing::TestWithParam<HeadCase> {};

TEST_P(LinearCrossEntropyTest, LossesAndGradientsFollowTheF64Reference) {
  HeadProblem p(GetParam());
  Tensor losses = Tensor::unwritten({p.rows}), mean = Tensor::unwritten({1}), again = losses, same = mean;
  Tensor dx = Tensor::unwritten({p.rows, p.k}, p.dtype), dw = Tensor::unwritten({p.vocab, p.k});
  test::Workspace workspace(p.workspace_bytes());
  linear_cross_entropy_host(p.args(losses, mean, workspace), *test::pool());
  EXPECT_LE(test::relative_error(losses.values(), p.losses), 2e-6);
  EXPECT_NEAR(mean.values()[0], p.mean, 1e-6 * p.mean);

  linear_cross_entropy_backward_host({p.args(again, same, workspace), dx.view(), dw.view()}, *test::pool());
  EXPECT_EQ(again.values(), losses.values());  // the forward alone gives the bits of a training step
  EXPECT_EQ(same.values(), mean.values());
  const double tolerance = p.dtype == DType::f32 ? 5e-6 : p.dtype == DType::bf16 ? 4e-3 : 5e-4;
  // dx is a sum over the vocabulary, which the GEMM of a build without oneDNN computes in sequence.
  EXPECT_LE(test::relative_error(dx.values(), p.dx),
            std::max(tolerance, 1e-9 * static_cast<double>(p.vocab)));
  EXPECT_LE(test::relative_error(dw.values(), p.dw), tolerance);
}

TEST_P(LinearCrossEntropyTest, OmittingAGradientChangesNoBitOfTheOther) {
  HeadProblem p(GetParam());
  Tensor losses = Tensor::unwritten({p.rows}), mean = Tensor::unwritten({1});
  Tensor dx = Tensor::unwritten({p.rows, p.k}, p.dtype), dw = Tensor::unwritten({p.vocab, p.k});
  Tensor dx_alone = dx, dw_alone = dw;
  test::Workspace workspace(p.workspace_bytes());
  const auto args = p.args(losses, mean, workspace);
  linear_cross_entropy_backward_host({args, dx.view(), dw.view()}, *test::pool());
  linear_cross_entropy_backward_host({args, dx_alone.view(), {}}, *test::pool());
  linear_cross_entropy_backward_host({args, {}, dw_alone.view()}, *test::pool());
  EXPECT_EQ(dx_alone.values(), dx.values());
  EXPECT_EQ(dw_alone.values(), dw.values());
}

TEST_P(LinearCrossEntropyTest, AddsToTheWeightsGradientAndScalesBoth) {
  HeadProblem p(GetParam());
  Tensor losses = Tensor::unwritten({p.rows}), mean = Tensor::unwritten({1});
  Tensor dx = Tensor::unwritten({p.rows, p.k}, p.dtype), dx4 = dx, dw = Tensor::unwritten({p.vocab, p.k});
  Tensor sum({p.vocab, p.k}, test::Values(9).floats(p.vocab * p.k));
  const std::vector<float> before = sum.values();
  test::Workspace workspace(p.workspace_bytes());
  const auto args = p.args(losses, mean, workspace);
  linear_cross_entropy_backward_host({args, dx.view(), dw.view()}, *test::pool(1));
  linear_cross_entropy_backward_host({args, dx4.view(), sum.view(), true, 4.0f}, *test::pool(3));
  std::vector<float> four = dx.values(), want = dw.values();
  for (float& value : four) value *= 4.0f;
  EXPECT_LE(test::relative_error(dx4.values(), test::widen(four)), 1e-3);  // f16 has subnormals below
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = before[i] + 4.0f * want[i];
  EXPECT_LE(test::relative_error(sum.values(), test::widen(want)), 1e-4);
}

// Two parts of the vocabulary of which neither has all targets.
TEST_P(LinearCrossEntropyTest, PartsOfTheVocabularyGiveTheLossesAndGradientsOfAllOfIt) {
  HeadProblem p(GetParam());
  if (p.vocab < 2) return;
  const std::int64_t half = p.vocab / 2, sizes[] = {half, p.vocab - half};
  Tensor stats = Tensor::unwritten({4, p.rows}), lse = Tensor::unwritten({p.rows}), losses = lse,
         mean = Tensor::unwritten({1});
  test::Workspace workspace(p.workspace_bytes());
  const auto part_of = [&](std::int64_t part) {
    const TensorView w = p.w.view();
    const std::int64_t first = part * half;
    LinearCrossEntropyArgs a = p.args(losses, mean, workspace);
    a.w = {w.data + static_cast<std::size_t>(first * p.k) * size_of(p.dtype), Shape{sizes[part], p.k},
           p.dtype};
    a.first_row = first;
    return a;
  };
  const auto row = [&](std::int64_t i) {
    return TensorView{stats.view().data + static_cast<std::size_t>(i * p.rows) * sizeof(float), Shape{p.rows},
                      DType::f32};
  };
  for (std::int64_t part = 0; part < 2; ++part) {
    LinearCrossEntropyArgs a = part_of(part);
    a.lse = row(2 * part);
    a.losses = row(2 * part + 1);
    linear_log_sum_exp_host(a, *test::pool());
  }
  merge_losses_host({stats.view(), test::view(p.targets), lse.view(), losses.view(), mean.view(), {}},
                    *test::pool());
  EXPECT_LE(test::relative_error(losses.values(), p.losses), 2e-6);
  std::vector<double> dx(static_cast<std::size_t>(p.rows * p.k));
  std::vector<float> dw;
  for (std::int64_t part = 0; part < 2; ++part) {
    LinearCrossEntropyArgs a = part_of(part);
    a.lse = lse.view();
    Tensor own_dx = Tensor::unwritten({p.rows, p.k}, p.dtype), own_dw = Tensor::unwritten({sizes[part], p.k});
    linear_cross_entropy_backward_host({.forward = a, .dx = own_dx.view(), .dw = own_dw.view()},
                                       *test::pool());
    const std::vector<float> x = own_dx.values(), w = own_dw.values();
    for (std::size_t i = 0; i < x.size(); ++i) dx[i] += x[i];
    dw.insert(dw.end(), w.begin(), w.end());
  }
  const double bound = p.dtype == DType::f32 ? 5e-6 : 1e-2;
  EXPECT_LE(test::relative_error(std::vector<float>(dx.begin(), dx.end()), p.dx), bound);
  EXPECT_LE(test::relative_error(dw, p.dw), bound);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LinearCrossEntropyTest,
    ::testing::Values(HeadCase{1, 1, 1, DType::f32}, HeadCase{5, 17, 3, DType::f32},
                      HeadCase{70, 256, 40, DType::f32}, HeadCase{70, 256, 40, DType::bf16},
                      HeadCase{70, 256, 40, DType::f16}, HeadCase{200, 60001, 4, DType::f32},
                      HeadCase{200, 60001, 4, DType::bf16}, HeadCase{300, 131073, 2, DType::bf16},
                      HeadCase{70, 256, 40, DType::f32, 5}, HeadCase{70, 256, 40, DType::bf16, 5}),
    [](const auto& test) {
      return str(to_string(test.param.dtype), "_", test.param.rows, "x", test.param.vocab,
                 test.param.softcap > 0 ? "_capped" : "");
    });

TEST(LinearCrossEntropyBlocksTest, RowsComeInBlocksOfAbout32MiBAndNeverLessThan64) {
  EXPECT_EQ(head_block_rows(4096, 1024, HeadBlocks::host), 4096);
  EXPECT_EQ(head_block_rows(4096, 50257, HeadBlocks::host), 128);
  EXPECT_EQ(head_block_rows(4096, 151936, HeadBlocks::host), 64);
  EXPECT_EQ(head_block_rows(7, 151936, HeadBlocks::host), 7);
  EXPECT_LE(linear_cross_entropy_workspace_bytes(1 << 20, 151936, DType::f32), std::size_t{40} << 20);
}

TEST(LinearCrossEntropyBlocksTest, OnTheHost16BitGradientsOfFourBlocksAreMultipliedAtOnce) {
  EXPECT_EQ(head_gradient_rows(4096, 50257, DType::bf16, HeadBlocks::host), 512);
  EXPECT_EQ(head_gradient_rows(4096, 50257, DType::f32, HeadBlocks::host), 128);
  EXPECT_EQ(head_gradient_rows(4096, 50257, DType::bf16, HeadBlocks::device), 1024);
  EXPECT_EQ(head_gradient_rows(200, 151936, DType::f16, HeadBlocks::host), 200);
  EXPECT_EQ(linear_cross_entropy_workspace_bytes(4096, 50257, DType::bf16),
            std::size_t{50257} * (128 * 4 + 512 * 2));
}

TEST(LinearCrossEntropyBlocksTest, OnAGpuBlocksHave1024RowsAtLeast) {
  EXPECT_EQ(head_block_rows(16384, 4096, HeadBlocks::device), 2048);
  for (const std::int64_t vocab : {8192, 32768, 50257, 131072})
    EXPECT_EQ(head_block_rows(16384, vocab, HeadBlocks::device), 1024) << vocab;
  EXPECT_EQ(head_block_rows(900, 131072, HeadBlocks::device), 900);
  EXPECT_EQ(linear_cross_entropy_workspace_bytes(16384, 131072, DType::bf16, HeadBlocks::device),
            std::size_t{1024} * 131072 * 6);
}

// The blocks of a GPU on the host: one of 200 rows instead of four.
TEST(LinearCrossEntropyBlocksTest, TheBlocksOfAGpuDifferByTheRoundingOfTheWeightsGradientAlone) {
  HeadProblem p({200, 60001, 4, DType::f32});
  Tensor losses = Tensor::unwritten({p.rows}), mean = Tensor::unwritten({1}), same = losses, same_mean = mean;
  Tensor dx = Tensor::unwritten({p.rows, p.k}), dw = Tensor::unwritten({p.vocab, p.k}), dx_gpu = dx,
         dw_gpu = dw;
  test::Workspace small(p.workspace_bytes()),
      large(linear_cross_entropy_workspace_bytes(p.rows, p.vocab, p.dtype, HeadBlocks::device));
  linear_cross_entropy_backward_host({p.args(losses, mean, small), dx.view(), dw.view()}, *test::pool());
  LinearCrossEntropyArgs of_gpu = p.args(same, same_mean, large);
  of_gpu.blocks = HeadBlocks::device;
  linear_cross_entropy_backward_host({of_gpu, dx_gpu.view(), dw_gpu.view()}, *test::pool());
  EXPECT_EQ(same.values(), losses.values());
  EXPECT_EQ(same_mean.values(), mean.values());
  EXPECT_LE(test::relative_error(dx_gpu.values(), p.dx), 1e-4);
  EXPECT_LE(test::relative_error(dw_gpu.values(), p.dw), 5e-6);
  of_gpu.workspace = small.view();
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  EXPECT_FALSE(linear_cross_entropy_async(backend, stream, of_gpu).is_ok());
}

TEST(LinearCrossEntropyBlocksTest, GradientsOfAnyThreadCountHaveTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    HeadProblem p({200, 60001, 4, dtype});
    std::vector<std::vector<float>> seen;
    for (const int threads : {1, 2, 3}) {
      Tensor losses = Tensor::unwritten({p.rows}), mean = Tensor::unwritten({1});
      Tensor dx = Tensor::unwritten({p.rows, p.k}, dtype), dw = Tensor::unwritten({p.vocab, p.k});
      test::Workspace workspace(p.workspace_bytes());
      linear_cross_entropy_backward_host({p.args(losses, mean, workspace), dx.view(), dw.view()},
                                         *test::pool(threads));
      seen.push_back(test::joined({losses.values(), mean.values(), dx.values(), dw.values()}));
      EXPECT_EQ(seen.back(), seen.front());
    }
  }
}

TEST(LinearCrossEntropyQueueTest, RefusesInconsistentOperands) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  HeadProblem p({5, 17, 3, DType::bf16});
  Tensor losses = Tensor::unwritten({5}), mean = Tensor::unwritten({1});
  Tensor dx = Tensor::unwritten({5, 3}, DType::bf16), dw = Tensor::unwritten({17, 3}, DType::bf16);
  test::Workspace workspace(p.workspace_bytes()), small(8);
  must(linear_cross_entropy_async(backend, stream, p.args(losses, mean, workspace)));
  const auto message = [](const Status& status) { return std::string(status.message()); };
  EXPECT_NE(message(linear_cross_entropy_async(backend, stream, p.args(losses, mean, small)))
                .find("workspace has 8 bytes"),
            std::string::npos);
  EXPECT_NE(message(linear_cross_entropy_backward_async(
                        backend, stream, {p.args(losses, mean, workspace), dx.view(), dw.view()}))
                .find("dw is bf16 [17, 3]; it must be f32"),
            std::string::npos);
}

}  // namespace
}  // namespace strata::kernels
