// Tests what the *_async functions of the ops of alignment do besides computing (see queue_test.cpp).
#include <strata/kernels/align/linear_log_probs.h>
#include <strata/kernels/align/policy_loss.h>
#include <strata/kernels/align/row_scores.h>
#include <strata/kernels/align/segment_sum.h>
#include <strata/kernels/linear_cross_entropy.h>
#include <strata/runtime/memory/alloc_counter.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;

TEST(AlignQueueTest, OpsDoNotAllocate) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  const std::vector<float> ones(1000, 1.0f);
  Tensor x({1000, 10}, std::vector<float>(10000, 0.1f)), w({1, 10}, std::vector<float>(10, 1.0f)),
      rows({1000}, ones), other = rows, dx = x, sums({4}, {0, 0, 0, 0}), counts = sums, divisor({1}, {1}),
                          loss = divisor, stats({6}, std::vector<float>(6));
  std::vector<std::int32_t> segments(1000, 1);
  test::Workspace space(1 << 16);
  const PolicyTokens tokens = {rows.view(), other.view(), rows.view(), rows.view(), {}};
  const auto run = [&] {
    must(row_scores_async(backend, stream, {x.view(), w.view(), {}, other.view()}));
    must(row_scores_backward_async(backend, stream,
                                   {.x = x.view(),
                                    .weight = w.view(),
                                    .dscores = rows.view(),
                                    .dx = dx.view(),
                                    .dweight = w.view(),
                                    .workspace = space.view()}));
    must(segment_sum_async(
        backend, stream,
        {rows.view(), test::view(segments), sums.view(), counts.view(), space.view(), false}));
    must(policy_loss_async(backend, stream, {tokens, divisor.view(), loss.view(), stats.view(), {}}));
    must(policy_loss_backward_async(backend, stream, {tokens, divisor.view(), rows.view(), {}}));
  };
  run();
  ASSERT_TRUE(AllocCounter::hooked());
  const std::uint64_t before = AllocCounter::count();
  AllocCounter::set_armed(true);
  run();
  AllocCounter::set_armed(false);
  EXPECT_EQ(AllocCounter::count() - before, 0u);
}

TEST(AlignQueueTest, ReadsWritesAndWorkspacesAreDeclared) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor x({2, 3}, std::vector<float>(6, 1.0f)), w({5, 3}, std::vector<float>(15, 1.0f)),
      log_probs({2}, {0, 0}), lse = log_probs;
  std::vector<std::int32_t> targets = {1, -1};
  test::Workspace space(linear_cross_entropy_workspace_bytes(2, 5, DType::f32));
  must(linear_log_probs_async(backend, stream,
                              {.x = x.view(),
                               .w = w.view(),
                               .targets = test::view(targets),
                               .log_probs = log_probs.view(),
                               .lse = lse.view(),
                               .workspace = space.view()}));
  const auto accesses = backend.last.accesses();
  ASSERT_EQ(accesses.size(), 6u);
  EXPECT_EQ(accesses[3].data, log_probs.view().data);
  EXPECT_TRUE(accesses[3].write && accesses[4].write);
  EXPECT_EQ(accesses.back().data, space.view().data);
  EXPECT_TRUE(accesses.back().write);
}

}  // namespace
}  // namespace strata::kernels
