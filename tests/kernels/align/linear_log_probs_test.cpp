#include <strata/kernels/align/linear_log_probs.h>

#include <algorithm>
#include <cmath>

#include <strata/kernels/elementwise.h>
#include <strata/kernels/linear_cross_entropy.h>
#include <strata/runtime/str.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::reference::Vec;

struct LogProbCase {
  std::int64_t rows, vocab, k;
  DType dtype;
  double softcap = 0, temperature = 1;
};

/// Operands, and all results in f64.
struct LogProbProblem {
  explicit LogProbProblem(const LogProbCase& c)
      : rows(c.rows),
        vocab(c.vocab),
        k(c.k),
        dtype(c.dtype),
        scaling{static_cast<float>(c.softcap), static_cast<float>(c.temperature)},
        x({rows, k}, test::Values(1).floats(rows * k, 2.0), dtype),
        w({vocab, k}, test::Values(2).floats(vocab * k, 2.0), dtype),
        dlog_probs({rows}, with_nan(test::Values(4).floats(rows))),
        targets(test::Values(3).below(rows, vocab)) {
    for (std::size_t t = 2; t < targets.size(); t += 5) targets[t] = -1;
    const auto n = static_cast<std::size_t>(rows), v = static_cast<std::size_t>(vocab),
               inner = static_cast<std::size_t>(k);
    const Vec xd = test::widen(x.values()), wd = test::widen(w.values());
    Vec logits = test::reference::linear_forward(xd, wd, {}, n, v, inner);
    dx.assign(n * inner, 0.0);
    dw.assign(v * inner, 0.0);
    for (std::size_t t = 0; t < n; ++t)
      add_row(t,
              {logits.begin() + static_cast<std::ptrdiff_t>(t * v),
               logits.begin() + static_cast<std::ptrdiff_t>((t + 1) * v)},
              c, xd, wd);
  }
  /// A gradient that nobody may read, where targets are ignored.
  static std::vector<float> with_nan(std::vector<float> values) {
    for (std::size_t t = 2; t < values.size(); t += 5) values[t] = std::nanf("");
    return values;
  }
  void add_row(std::size_t t, Vec logits, const LogProbCase& c, const Vec& xd, const Vec& wd) {
    const auto inner = static_cast<std::size_t>(k);
    if (targets[t] < 0) {
      log_probs.push_back(0);
      entropies.push_back(0);
      return;
    }
    Vec slope(logits.size(), 1 / c.temperature);
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (c.softcap > 0) {
        const double tanh = std::tanh(logits[j] / c.softcap);
        logits[j] = c.softcap * tanh;
        slope[j] *= 1 - tanh * tanh;
      }
      logits[j] /= c.temperature;
    }
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - most);
    const double lse = most + std::log(sum);
    const auto target = static_cast<std::size_t>(targets[t]);
    log_probs.push_back(logits[target] - lse);
    const auto dlog_prob = static_cast<double>(dlog_probs.values()[t]);
    double entropy = 0;
    for (std::size_t j = 0; j < logits.size(); ++j) {
      const double p = std::exp(logits[j] - lse);
      entropy -= p * (logits[j] - lse);
      const double d = dlog_prob * ((j == target ? 1.0 : 0.0) - p) * slope[j];
      for (std::size_t i = 0; i < inner; ++i) {
        dx[t * inner + i] += d * wd[j * inner + i];
        dw[j * inner + i] += d * xd[t * inner + i];
      }
    }
    entropies.push_back(entropy);
  }
  LinearLogProbsArgs args(Tensor& log_probs_out, Tensor& lse_out, TensorView entropies_out,
                          test::Workspace& workspace) {
    return {.x = x.view(),
            .w = w.view(),
            .targets = test::view(targets),
            .log_probs = log_probs_out.view(),
            .lse = lse_out.view(),
            .entropies = entropies_out,
            .workspace = workspace.view(),
            .scaling = scaling};
  }
  LinearLogProbsBackwardArgs backward(Tensor& lse_of_forward, TensorView dx_out, TensorView dw_out,
                                      test::Workspace& workspace, bool accumulate = false) {
    return {.x = x.view(),
            .w = w.view(),
            .targets = test::view(targets),
            .lse = lse_of_forward.view(),
            .dlog_probs = dlog_probs.view(),
            .dx = dx_out,
            .dw = dw_out,
            .accumulate_dw = accumulate,
            .workspace = workspace.view(),
            .scaling = scaling};
  }
  std::size_t workspace_bytes() const { return linear_cross_entropy_workspace_bytes(rows, vocab, dtype); }
  Tensor row_results() const { return Tensor::unwritten({rows}); }
  std::int64_t rows, vocab, k;
  DType dtype;
  LogProbScaling scaling;
  Tensor x, w, dlog_probs;
  std::vector<std::int32_t> targets;
  Vec log_probs, entropies, dx, dw;
};

class LinearLogProbsTest : public ::testing::TestWithParam<LogProbCase> {};

TEST_P(LinearLogProbsTest, ResultsAndGradientsFollowTheF64Reference) {
  LogProbProblem p(GetParam());
  Tensor log_probs = p.row_results(), lse = log_probs, entropies = log_probs;
  Tensor dx = Tensor::unwritten({p.rows, p.k}, p.dtype), dw = Tensor::unwritten({p.vocab, p.k});
  test::Workspace workspace(p.workspace_bytes());
  linear_log_probs_host(p.args(log_probs, lse, entropies.view(), workspace), *test::pool());
  EXPECT_LE(test::relative_error(log_probs.values(), p.log_probs), 2e-6);
  EXPECT_LE(test::relative_error(entropies.values(), p.entropies), 1e-5);
  linear_log_probs_backward_host(p.backward(lse, dx.view(), dw.view(), workspace), *test::pool());
  const double tolerance = p.dtype == DType::f32 ? 5e-6 : p.dtype == DType::bf16 ? 4e-3 : 5e-4;
  EXPECT_LE(test::relative_error(dx.values(), p.dx),
            std::max(tolerance, 1e-9 * static_cast<double>(p.vocab)));
  EXPECT_LE(test::relative_error(dw.values(), p.dw), tolerance);
}

TEST_P(LinearLogProbsTest, IgnoredTargetsHaveZeros) {
  LogProbProblem p(GetParam());
  Tensor log_probs = p.row_results(), lse = log_probs, entropies = log_probs;
  Tensor dx = Tensor::unwritten({p.rows, p.k}, p.dtype), dw = Tensor::unwritten({p.vocab, p.k});
  std::fill(p.targets.begin(), p.targets.end(), -1);
  test::Workspace workspace(p.workspace_bytes());
  linear_log_probs_host(p.args(log_probs, lse, entropies.view(), workspace), *test::pool());
  linear_log_probs_backward_host(p.backward(lse, dx.view(), dw.view(), workspace), *test::pool());
  for (const Tensor* all : {&log_probs, &lse, &entropies, &dx, &dw})
    EXPECT_EQ(test::differing_bits(all->values(), std::vector<float>(all->values().size(), 0.0f)), 0u);
}

TEST_P(LinearLogProbsTest, AGradientOrEntropiesAloneChangeNoBitOfTheRest) {
  LogProbProblem p(GetParam());
  Tensor log_probs = p.row_results(), lse = log_probs, entropies = log_probs, plain = log_probs;
  Tensor dx = Tensor::unwritten({p.rows, p.k}, p.dtype), dw = Tensor::unwritten({p.vocab, p.k});
  Tensor dx_alone = dx, dw_alone = dw;
  test::Workspace workspace(p.workspace_bytes());
  linear_log_probs_host(p.args(plain, lse, {}, workspace), *test::pool());
  linear_log_probs_host(p.args(log_probs, lse, entropies.view(), workspace), *test::pool());
  EXPECT_EQ(plain.values(), log_probs.values());
  linear_log_probs_backward_host(p.backward(lse, dx.view(), dw.view(), workspace), *test::pool());
  linear_log_probs_backward_host(p.backward(lse, dx_alone.view(), {}, workspace), *test::pool());
  linear_log_probs_backward_host(p.backward(lse, {}, dw_alone.view(), workspace), *test::pool());
  EXPECT_EQ(dx_alone.values(), dx.values());
  EXPECT_EQ(dw_alone.values(), dw.values());
}

TEST_P(LinearLogProbsTest, AddsToTheWeightsGradient) {
  LogProbProblem p(GetParam());
  Tensor log_probs = p.row_results(), lse = log_probs, dw = Tensor::unwritten({p.vocab, p.k});
  Tensor sum({p.vocab, p.k}, test::Values(9).floats(p.vocab * p.k));
  std::vector<float> want = sum.values();
  test::Workspace workspace(p.workspace_bytes());
  linear_log_probs_host(p.args(log_probs, lse, {}, workspace), *test::pool());
  linear_log_probs_backward_host(p.backward(lse, {}, dw.view(), workspace), *test::pool());
  linear_log_probs_backward_host(p.backward(lse, {}, sum.view(), workspace, true), *test::pool());
  const std::vector<float> added = dw.values();
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += added[i];
  EXPECT_LE(test::relative_error(sum.values(), test::widen(want)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LinearLogProbsTest,
    ::testing::Values(LogProbCase{1, 1, 1, DType::f32}, LogProbCase{1, 17, 3, DType::bf16},
                      LogProbCase{5, 17, 3, DType::f32}, LogProbCase{70, 256, 40, DType::f32},
                      LogProbCase{70, 256, 40, DType::bf16}, LogProbCase{70, 256, 40, DType::f16},
                      LogProbCase{70, 256, 40, DType::f32, 5}, LogProbCase{70, 256, 40, DType::f32, 0, 0.7},
                      LogProbCase{70, 256, 40, DType::f16, 0, 3},
                      LogProbCase{70, 256, 40, DType::f32, 5, 0.7},
                      LogProbCase{70, 256, 40, DType::bf16, 5, 1.3}, LogProbCase{100, 90001, 3, DType::f32}),
    [](const auto& test) {
      return str(to_string(test.param.dtype), "_", test.param.rows, "x", test.param.vocab,
                 test.param.softcap > 0 ? "_capped" : "",
                 test.param.temperature != 1
                     ? str("_temperature_", static_cast<int>(10 * test.param.temperature + 0.5))
                     : "");
    });

TEST(LinearLogProbsBitsTest, AreTheNegativeLossesOfLinearCrossEntropyBitForBit) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double softcap : {0.0, 5.0}) {
      LogProbProblem p({70, 5003, 40, dtype, softcap});
      Tensor log_probs = p.row_results(), lse = log_probs, losses = log_probs, mean = Tensor::unwritten({1});
      test::Workspace workspace(p.workspace_bytes());
      linear_log_probs_host(p.args(log_probs, lse, {}, workspace), *test::pool());
      linear_cross_entropy_host({.x = p.x.view(),
                                 .w = p.w.view(),
                                 .targets = test::view(p.targets),
                                 .losses = losses.view(),
                                 .mean_loss = mean.view(),
                                 .workspace = workspace.view(),
                                 .softcap = p.scaling.softcap},
                                *test::pool());
      std::vector<float> negative = losses.values();
      for (float& loss : negative) loss = -loss;
      EXPECT_EQ(log_probs.values(), negative);
    }
}

// Logits are the columns of the matrix, whatever the order of sums, where the rows are those of the identity.
TEST(LinearLogProbsBitsTest, ATokensLogProbabilityIsThatOfItsRowBitForBit) {
  for (const double softcap : {0.0, 5.0})
    for (const double temperature : {1.0, 0.7, 2.3}) {
      constexpr std::int64_t kRows = 20, kVocab = 5003;
      LogProbProblem p({kRows, kVocab, kRows, DType::f32, softcap, temperature});
      std::vector<float> identity(kRows * kRows, 0.0f);
      for (std::size_t t = 0; t < kRows; ++t) identity[t * kRows + t] = 1.0f;
      p.x = Tensor({kRows, kRows}, identity);
      Tensor log_probs = p.row_results(), lse = log_probs, entropies = log_probs;
      test::Workspace workspace(p.workspace_bytes());
      linear_log_probs_host(p.args(log_probs, lse, entropies.view(), workspace), *test::pool());
      for (std::size_t t = 0; t < kRows; ++t) {
        if (p.targets[t] < 0) continue;
        std::vector<float> logits;
        for (std::size_t j = 0; j < kVocab; ++j) logits.push_back(p.w.values()[j * kRows + t]);
        Tensor row({1, kVocab}, logits);
        if (softcap > 0)
          softcap_host({.x = row.view(), .y = row.view(), .cap = p.scaling.softcap}, *test::pool());
        std::vector<float> capped = row.values();
        const TokenLogProb token = token_log_prob(capped, p.targets[t], p.scaling.temperature);
        EXPECT_EQ(token.log_prob, log_probs.values()[t]) << softcap << " " << temperature;
        EXPECT_EQ(token.entropy, entropies.values()[t]) << softcap << " " << temperature;
      }
    }
}

TEST(LinearLogProbsBitsTest, AnyThreadCountGivesTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    LogProbProblem p({200, 60001, 4, dtype, 5, 0.9});
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      Tensor log_probs = p.row_results(), lse = log_probs, entropies = log_probs;
      Tensor dx = Tensor::unwritten({p.rows, p.k}, dtype), dw = Tensor::unwritten({p.vocab, p.k});
      test::Workspace workspace(p.workspace_bytes());
      const auto pool = test::pool(threads);
      linear_log_probs_host(p.args(log_probs, lse, entropies.view(), workspace), *pool);
      linear_log_probs_backward_host(p.backward(lse, dx.view(), dw.view(), workspace), *pool);
      const auto all =
          test::joined({log_probs.values(), lse.values(), entropies.values(), dx.values(), dw.values()});
      if (first.empty()) first = all;
      EXPECT_EQ(test::differing_bits(all, first), 0u) << threads << " threads";
    }
  }
}

TEST(LinearLogProbsBitsTest, RefusesInconsistentOperands) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  LogProbProblem p({5, 17, 3, DType::bf16});
  Tensor log_probs = p.row_results(), lse = log_probs, dx = Tensor::unwritten({5, 3}, DType::bf16),
         dw = Tensor::unwritten({17, 3}, DType::bf16);
  test::Workspace workspace(p.workspace_bytes());
  must(linear_log_probs_async(backend, stream, p.args(log_probs, lse, {}, workspace)));
  LinearLogProbsArgs cold = p.args(log_probs, lse, {}, workspace);
  cold.scaling.temperature = 0;
  EXPECT_NE(linear_log_probs_async(backend, stream, cold).message().find("temperature is 0"),
            std::string_view::npos);
  EXPECT_NE(linear_log_probs_backward_async(backend, stream, p.backward(lse, dx.view(), dw.view(), workspace))
                .message()
                .find("dw is bf16 [17, 3]; it must be f32"),
            std::string_view::npos);
}

}  // namespace
}  // namespace strata::kernels
