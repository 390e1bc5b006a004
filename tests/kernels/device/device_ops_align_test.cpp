// Compares the ops of alignment on the GPU with the host's (see device_ops_test.cpp): the same bits, except
// behind GEMMs.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/kernels/align/linear_log_probs.h>
#include <strata/kernels/align/pair_loss.h>
#include <strata/kernels/align/policy_loss.h>
#include <strata/kernels/align/row_scores.h>
#include <strata/kernels/align/segment_sum.h>
#include <strata/kernels/align/value_loss.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

using test::Values;

class DeviceAlignTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
  TensorView f32(const Shape& shape) { return unwritten(shape, DType::f32); }
  TensorView vector(std::int64_t n, std::uint64_t seed, double scale = 1.0) {
    return in({n}, seed, scale, DType::f32);
  }
  /// Every seventh is 0.
  TensorView weights(std::int64_t n, std::uint64_t seed) {
    const TensorView w = vector(n, seed);
    for (std::int64_t i = 0; i < n; i += 7) w.as<float>()[i] = 0;
    return w;
  }
  TensorView one(float value) {
    const TensorView x = f32({1});
    *x.as<float>() = value;
    return x;
  }
};
/// Losses have no stored dtype.
class DeviceLossTest : public DeviceAlignTest {};

TEST_P(DeviceAlignTest, LinearLogProbsAreCloseToTheHosts) {
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : GetParam() == DType::f16 ? 2e-3 : 1e-2;
  constexpr std::int64_t rows = 300, k = 64, vocab = 40001;  // two blocks of rows
  std::vector<std::int32_t> wanted = Values(9).below(rows, vocab);
  for (std::size_t i = 0; i < wanted.size(); i += 7) wanted[i] = -1;
  const TensorView x = in({rows, k}, 1), w = in({vocab, k}, 2), targets = integers(wanted), lse = f32({rows});
  const BufferView space = workspace(linear_cross_entropy_workspace_bytes(rows, vocab, GetParam())),
                   gemms = workspace(linear_cross_entropy_gemm_workspace_bytes(rows, vocab, k));
  for (const LogProbScaling& scaling :
       {LogProbScaling{}, LogProbScaling{0, 0.7f}, LogProbScaling{5, 1}, LogProbScaling{5, 1.3f}}) {
    const LinearLogProbsArgs forward = {x, w, targets, f32({rows}), lse, f32({rows}), space, gemms, scaling};
    for (TensorView LinearLogProbsArgs::*output :
         {&LinearLogProbsArgs::log_probs, &LinearLogProbsArgs::entropies, &LinearLogProbsArgs::lse})
      expect_close<LinearLogProbsArgs>("log-probabilities", forward, &linear_log_probs_host,
                                       &linear_log_probs_async, output, tolerance);
    const LinearLogProbsBackwardArgs backward = {.x = x,
                                                 .w = w,
                                                 .targets = targets,
                                                 .lse = lse,
                                                 .dlog_probs = vector(rows, 3),
                                                 .dx = unwritten({rows, k}, GetParam()),
                                                 .dw = in({vocab, k}, 4, 1.0, DType::f32),
                                                 .accumulate_dw = true,
                                                 .workspace = space,
                                                 .gemm_workspace = gemms,
                                                 .scaling = scaling};
    for (TensorView LinearLogProbsBackwardArgs::*output :
         {&LinearLogProbsBackwardArgs::dx, &LinearLogProbsBackwardArgs::dw})
      expect_close<LinearLogProbsBackwardArgs>("their gradients", backward, &linear_log_probs_backward_host,
                                               &linear_log_probs_backward_async, output, tolerance);
  }
}

TEST_P(DeviceAlignTest, RowScores) {
  for (const auto& [rows, k] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {70, 100}, {5000, 255}}) {
    const TensorView x = in({rows, k}, 1), w = in({1, k}, 2), bias = in({1}, 3);
    for (const TensorView& given : {TensorView{}, bias})
      expect_same_bits<RowScoresArgs>("scores", {x, w, given, f32({rows})}, &row_scores_host,
                                      &row_scores_async, {&RowScoresArgs::scores});
    for (const bool adds : {false, true})
      expect_same_bits<RowScoresBackwardArgs>(
          "scores backward",
          {x, w, vector(rows, 4), unwritten({rows, k}, GetParam()), in({1, k}, 5, 1.0, DType::f32),
           in({1}, 6, 1.0, DType::f32), adds, adds, workspace(row_scores_backward_workspace_bytes(rows, k))},
          &row_scores_backward_host, &row_scores_backward_async,
          {&RowScoresBackwardArgs::dx, &RowScoresBackwardArgs::dweight, &RowScoresBackwardArgs::dbias});
  }
}

TEST_P(DeviceLossTest, SegmentSums) {
  for (const auto& [tokens, n] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {31, 40}, {50001, 37}})
    for (const bool mean : {false, true}) {
      std::vector<std::int32_t> of = Values(9).below(tokens, n);
      for (std::size_t i = 1; i < of.size(); i += 3) of[i] = -1;
      const TensorView segments = integers(of), counts = f32({n});
      expect_same_bits<SegmentSumArgs>(
          "segment sum",
          {vector(tokens, 1), segments, f32({n}), counts, workspace(segment_sum_workspace_bytes(n)), mean},
          &segment_sum_host, &segment_sum_async, {&SegmentSumArgs::sums, &SegmentSumArgs::counts});
      expect_same_bits<SegmentSumBackwardArgs>(
          "segment sum backward", {segments, counts, vector(n, 2), f32({tokens}), mean},
          &segment_sum_backward_host, &segment_sum_backward_async, {&SegmentSumBackwardArgs::dx});
    }
}

TEST_P(DeviceLossTest, PolicyLosses) {
  for (const std::int64_t n : {1, 511, 50001})
    for (const KlEstimator kl : {KlEstimator::k1, KlEstimator::k3}) {
      const PolicyTokens tokens = {vector(n, 1), vector(n, 2), vector(n, 3), weights(n, 4), vector(n, 5)};
      const PolicyLossOptions options = {.kl_coef = 0.1f, .kl = kl};
      expect_same_bits<PolicyLossArgs>("policy loss", {tokens, one(7), f32({1}), f32({6}), options},
                                       &policy_loss_host, &policy_loss_async,
                                       {&PolicyLossArgs::loss, &PolicyLossArgs::stats});
      expect_same_bits<PolicyLossBackwardArgs>("policy loss backward", {tokens, one(7), f32({n}), options},
                                               &policy_loss_backward_host, &policy_loss_backward_async,
                                               {&PolicyLossBackwardArgs::dlog_probs});
    }
}

TEST_P(DeviceLossTest, ValueLosses) {
  for (const std::int64_t n : {1, 511, 50001})
    for (const float clip : {0.0f, 0.3f}) {
      const ValueTokens tokens = {vector(n, 1), clip > 0 ? vector(n, 2) : TensorView{}, vector(n, 3),
                                  weights(n, 4)};
      expect_same_bits<ValueLossArgs>("value loss", {tokens, one(7), f32({1}), f32({4}), {clip}},
                                      &value_loss_host, &value_loss_async,
                                      {&ValueLossArgs::loss, &ValueLossArgs::stats});
      expect_same_bits<ValueLossBackwardArgs>("value loss backward", {tokens, one(7), f32({n}), {clip}},
                                              &value_loss_backward_host, &value_loss_backward_async,
                                              {&ValueLossBackwardArgs::dvalues});
    }
}

TEST_P(DeviceLossTest, PairLosses) {
  for (const std::int64_t n : {1, 511, 5001})
    for (const PairLossKind kind : {PairLossKind::sigmoid, PairLossKind::ipo}) {
      const bool is_ipo = kind == PairLossKind::ipo;
      const ScorePairs pairs = {vector(2 * n, 1, 20), vector(2 * n, 2, 20), weights(n, 3),
                                is_ipo ? TensorView{} : vector(n, 4)};
      const PairLossOptions options = {.kind = kind, .beta = 0.3f, .label_smoothing = is_ipo ? 0.0f : 0.1f};
      expect_same_bits<PairLossArgs>("pair loss", {pairs, one(7), f32({1}), f32({4}), options},
                                     &pair_loss_host, &pair_loss_async,
                                     {&PairLossArgs::loss, &PairLossArgs::stats});
      expect_same_bits<PairLossBackwardArgs>("pair loss backward", {pairs, one(7), f32({2 * n}), options},
                                             &pair_loss_backward_host, &pair_loss_backward_async,
                                             {&PairLossBackwardArgs::dscores});
    }
}

constexpr auto kName = [](const auto& test) { return std::string(to_string(test.param)); };
INSTANTIATE_TEST_SUITE_P(Stored, DeviceAlignTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         kName);
INSTANTIATE_TEST_SUITE_P(Stored, DeviceLossTest, ::testing::Values(DType::f32), kName);

}  // namespace
}  // namespace strata::kernels
