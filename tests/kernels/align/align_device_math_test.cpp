// Runs the functions of the device kernels on the host, one lane or thread after the other, and expects the
// bits of the host's ops (see device/device_math_test.cpp).
#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/kernels/align/row_scores.h>

#include "align/policy_math.h"
#include "cuda/align/row_score_math.h"
#include "cuda/emulation/thread_block.h"
#include "cuda/row_math.h"
#include "row_table.h"
#include "simd_table.h"
#include "support/op_test.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

using dispatch::EmulatedHalfWarp;
using test::Tensor;
using test::Values;

constexpr EmulatedHalfWarp kLanes;

template <class T>
class AlignDeviceMathTest : public ::testing::Test {};
using Stored = ::testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(AlignDeviceMathTest, Stored);

TYPED_TEST(AlignDeviceMathTest, RowScoresAndTheirGradients) {
  using T = TypeParam;
  constexpr std::int64_t rows = 300, k = 101;
  const detail::RowBlocks blocks = detail::row_blocks(rows);
  Tensor x({rows, k}, Values(1).floats(rows * k), dtype_of<T>), w({1, k}, Values(2).floats(k), dtype_of<T>),
      bias({1}, {0.3f}, dtype_of<T>), scores = Tensor::unwritten({rows}),
                                      dx = Tensor::unwritten({rows, k}, dtype_of<T>),
                                      dw = Tensor::unwritten({1, k}), db = Tensor::unwritten({1});
  test::Workspace space(row_scores_backward_workspace_bytes(rows, k));
  row_scores_host({x.view(), w.view(), bias.view(), scores.view()}, *test::pool());
  row_scores_backward_host({.x = x.view(),
                            .weight = w.view(),
                            .dscores = scores.view(),
                            .dx = dx.view(),
                            .dweight = dw.view(),
                            .dbias = db.view(),
                            .workspace = space.view()},
                           *test::pool());
  const T* const rows_of_x = x.view().template as<T>();
  const T* const weight = w.view().template as<T>();
  const std::vector<float> d = scores.values();
  std::vector<float> of_row, of_dx, sums(k + 1);
  for (std::int64_t t = 0; t < rows; ++t) {
    of_row.push_back(detail::row_score(kLanes, rows_of_x + t * k, weight, bias.view().template as<T>(), k));
    for (std::int64_t i = 0; i < k; ++i)
      of_dx.push_back(to_f32(detail::stored_scale(weight[i], d[static_cast<std::size_t>(t)])));
  }
  for (std::int64_t column = 0; column <= k; ++column)
    for (std::int64_t block = 0; block < blocks.count; ++block)
      sums[static_cast<std::size_t>(column)] += detail::score_column(
          rows_of_x, d.data(), column, k, block * blocks.rows, std::min(rows, (block + 1) * blocks.rows));
  EXPECT_EQ(of_row, scores.values());
  EXPECT_EQ(of_dx, dx.values());
  EXPECT_EQ(sums, test::joined({dw.values(), db.values()}));
}

TEST(AlignDeviceTest, ScaledLogitsAndEntropies) {
  for (const std::int64_t n : {1, 17, 4096, 4097, 20011}) {
    const std::vector<float> logits = Values(1).floats(n, 9.0);
    for (const float cap : {0.0f, 5.0f}) {
      std::vector<float> host = logits, device = logits;
      // As a sampler does with the capped logits that it gets.
      if (cap > 0) detail::row_table().softcap(host.data(), 1.0f, cap, n);
      detail::simd_table<float>().scale(host.data(), host.data(), 1.25f, n);
      for (float& logit : device) logit = detail::scaled_capped_logit(logit, 1.25f, cap);
      EXPECT_EQ(device, host);
      const float lse = detail::simd_table<float>().log_sum_exp(host.data(), n);
      double sum = 0;
      for (std::int64_t run = 0; run * detail::kLseRun < n; ++run)
        sum += static_cast<double>(detail::entropy_sum_of_run(kLanes, host.data(), lse, run, n));
      EXPECT_EQ(static_cast<float>(0.0 - sum), detail::row_table().entropy(host.data(), lse, n)) << n;
    }
  }
}

TEST(AlignDeviceTest, TheOrderOfThreadsChangesNoBitOfALoss) {
  constexpr std::int64_t n = 5003;
  const std::vector<float> log_probs = Values(1).floats(n), old = Values(2).floats(n),
                           advantages = Values(3).floats(n), weights = Values(4).floats(n, 0.5, 0.5);
  const float divisor = 2;
  std::vector<std::vector<float>> seen;
  const auto run = [&](const auto& block) {
    std::vector<float> out(7);
    static double lanes[detail::kLossResults<detail::PolicyLoss>][detail::kLossLanes];
    const detail::LossCall<detail::PolicyLoss> call = {
        {log_probs.data(), old.data(), advantages.data(), weights.data(), nullptr, {}},
        n,
        &divisor,
        out.data(),
        out.data() + 1};
    detail::reduce_loss(block, call, lanes);
    seen.push_back(out);
  };
  run(detail::EmulatedThreads<detail::kLossLanes>());
  run(detail::EmulatedThreads<detail::kLossLanes, true>());
  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace
}  // namespace strata::kernels
