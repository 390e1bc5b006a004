// The plans that cuDNN makes for attention on GPUs that need not be present: they are built with a stub of
// the driver that runs nothing (support/stub_libcuda.cpp).

#include "cuda/attention/cudnn_attention.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/kernels/cublaslt_algorithms.h>
#include <strata/runtime/str.h>

#include "cuda/attention/attention_plans.h"

namespace strata::kernels::detail {
namespace {

using ::testing::HasSubstr;

CudnnAttention of(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t seq,
                  std::int64_t d) {
  return {.batch = batch, .heads = heads, .kv_heads = kv_heads, .seq = seq, .d = d};
}

// A GPU as cuDNN's "device properties" in JSON.
std::string gpu(int compute_capability, int multiprocessors, int shared_bytes) {
  return str(
      R"({"deviceName": "GPU", "maxGridSize": [2147483647, 65535, 65535], )",
      R"("maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": )", multiprocessors,
      R"(, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": )", shared_bytes,
      R"(, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0, )",
      R"("isTccDriver": 0, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000, )",
      R"("l2CacheSize": 62914560, "cudaDeviceId": 0, "driverVer": 13000, )",
      R"("totalGlobalMem": 80000000000, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, )",
      R"("maxThreadsPerSM": 2048, "supportCoopLaunch": 1, "deviceVer": )", compute_capability * 10, "}");
}

class CudnnAttentionTest : public ::testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  void SetUp() override {
    ASSERT_NE(::dlopen(STRATA_STUB_LIBCUDA, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
    if (const auto cudnn = cudnn_version(); !cudnn.has_value()) GTEST_SKIP() << cudnn.status().message();
  }
};

TEST_P(CudnnAttentionTest, PlansFitIntoTheWorkspace) {
  const auto [compute_capability, multiprocessors, shared_bytes] = GetParam();
  const std::string where = gpu(compute_capability, multiprocessors, shared_bytes);
  for (const CudnnAttention& shape : {of(1, 32, 8, 2048, 128), of(2, 12, 12, 1000, 64), of(3, 6, 2, 97, 96),
                                      of(64, 32, 8, 130, 128), of(1, 2, 1, 4096, 16), of(4, 8, 4, 128, 80)})
    for (const bool backward : {false, true})
      for (const bool causal : {true, false})
        for (const DType dtype : {DType::bf16, DType::f16}) {
          if (dtype == DType::f16 && !causal) continue;  // same as bf16, and each plan takes a second
          CudnnAttention a = shape;
          a.backward = backward;
          a.causal = causal;
          a.dtype = dtype;
          const auto plan = cudnn_plan(a, where);
          ASSERT_TRUE(plan.has_value()) << plan.status().message();
          EXPECT_LE(plan->bytes, cudnn_workspace_bytes(a))
              << plan->name << ", " << shape.seq << " of " << shape.d << ", backward " << backward;
        }
}
INSTANTIATE_TEST_SUITE_P(Gpus, CudnnAttentionTest,
                         ::testing::Values(std::tuple(80, 108, 166912), std::tuple(90, 132, 232448),
                                           std::tuple(100, 148, 232448)),
                         [](const auto& of) { return str("sm_", std::get<0>(of.param)); });

// On 9.0 the workspace of cuDNN has room for the gradients of scores, and cudnn_workspace_bytes() exceeds it
// by at most 2 %.
TEST_F(CudnnAttentionTest, BackwardWorkspaceHoldsScoreGradients) {
  CudnnAttention a = of(1, 32, 8, 2048, 128);
  a.backward = true;
  const auto plan = cudnn_plan(a, gpu(90, 132, 232448));
  ASSERT_TRUE(plan.has_value()) << plan.status().message();
  EXPECT_GE(plan->bytes, std::int64_t{32} * 2048 * 2048 * 2);
  EXPECT_LE(cudnn_workspace_bytes(a), plan->bytes + plan->bytes / 50);
}

// Heads that are a part of a row's, which are further apart than those of a whole row.
TEST_F(CudnnAttentionTest, PartsOfRowsHavePlansThatFit) {
  CudnnAttention a = of(1, 32, 8, 8192, 128);
  a.backward = true;
  const CudnnPart part = cudnn_part(a, cudnn_parts(a), 1);
  ASSERT_EQ(part.attention.row_heads, 32);
  const auto plan = cudnn_plan(part.attention, gpu(90, 132, 232448));
  ASSERT_TRUE(plan.has_value()) << plan.status().message();
  EXPECT_LE(plan->bytes, cudnn_workspace_bytes(a, cudnn_parts(a)));
}

TEST_F(CudnnAttentionTest, UnsupportedHeadsAreNamedInTheError) {
  const auto plan = cudnn_plan(of(1, 2, 2, 64, 20), gpu(90, 132, 232448));
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("attention forward of 1 x 64 tokens, 2 heads"));
}

TEST(CudnnAttentionShapeTest, SupportFollowsFromTheShapeAlone) {
  AttentionHeads heads{.heads = 4, .kv_heads = 2, .seq = 256, .backend = AttentionBackend::cudnn};
  const auto takes = [&](DType dtype, std::int64_t d) {
    return cudnn_supports(cudnn_attention(true, 512, heads, dtype, d), heads);
  };
  EXPECT_TRUE(takes(DType::bf16, 64));
  EXPECT_TRUE(takes(DType::f16, 128));
  EXPECT_FALSE(takes(DType::f32, 64));
  EXPECT_FALSE(takes(DType::bf16, 136));
  EXPECT_FALSE(takes(DType::bf16, 68));
  heads.alibi = true;
  EXPECT_FALSE(takes(DType::bf16, 64));
  heads.alibi = false;
  heads.backend = AttentionBackend::wgmma;
  EXPECT_FALSE(takes(DType::bf16, 64));
  heads = {.heads = 32, .kv_heads = 8, .seq = 8192, .backend = AttentionBackend::cudnn};
  EXPECT_TRUE(cudnn_supports(cudnn_attention(false, 8192, heads, DType::bf16, 128), heads));
  // 512 MiB for the four query heads of a key head
  EXPECT_TRUE(cudnn_supports(cudnn_attention(true, 8192, heads, DType::bf16, 128), heads));
  heads.seq = 8320;
  EXPECT_FALSE(cudnn_supports(cudnn_attention(true, 8320, heads, DType::bf16, 128), heads));
  heads.seq = 1;
  EXPECT_FALSE(cudnn_supports(cudnn_attention(false, 64, heads, DType::bf16, 128), heads));
  heads.seq = std::int64_t{1} << 31;
  EXPECT_FALSE(cudnn_supports(cudnn_attention(true, heads.seq, heads, DType::bf16, 128), heads));
}

/// Every (sequence, head) belongs to exactly one part, whose offsets are those of its first; returns the
/// largest score bytes of a part.
std::int64_t check_parts(const CudnnAttention& a) {
  const CudnnParts parts = cudnn_parts(a);
  const std::int64_t group = a.heads / a.kv_heads, width = a.heads + 2 * a.kv_heads;
  std::vector<int> seen(static_cast<std::size_t>(a.batch * a.heads));
  std::int64_t most = 0, workspace = 0;
  for (std::int64_t i = 0; i < parts.count(); ++i) {
    const CudnnPart part = cudnn_part(a, parts, i);
    const CudnnAttention& of = part.attention;
    EXPECT_EQ(of.heads, of.kv_heads * group);
    EXPECT_EQ(of.heads_of_row(), a.heads);
    EXPECT_EQ(of.kv_heads_of_row(), a.kv_heads);
    EXPECT_TRUE(of.heads == a.heads || of.batch == 1) << "the lse of some heads of several sequences";
    const std::int64_t entry = part.lse / (a.heads * a.seq), head = part.lse / a.seq % a.heads,
                       row = entry * a.seq;
    EXPECT_EQ(head % group, 0);
    EXPECT_EQ(part.lse % 4, 0);
    EXPECT_EQ(part.q, (row * width + head) * a.d);
    EXPECT_EQ(part.k, (row * width + a.heads + head / group) * a.d);
    EXPECT_EQ(part.v, (row * width + a.heads + a.kv_heads + head / group) * a.d);
    EXPECT_EQ(part.out, (row * a.heads + head) * a.d);
    for (std::int64_t b = entry; b < entry + of.batch; ++b)
      for (std::int64_t h = head; h < head + of.heads; ++h) ++seen[static_cast<std::size_t>(b * a.heads + h)];
    most = std::max(most, cudnn_score_bytes(of));
    workspace = std::max(workspace, cudnn_workspace_bytes(of));
  }
  EXPECT_THAT(seen, ::testing::Each(1));
  EXPECT_EQ(cudnn_workspace_bytes(a, parts), workspace);
  return most;
}

TEST(CudnnAttentionShapeTest, BackwardRunsInPartsOf256MiBOrOneKeyHead) {
  const auto backward = [](CudnnAttention a) {
    a.backward = true;
    return a;
  };
  EXPECT_EQ(cudnn_parts(of(4, 32, 8, 8192, 128)).count(), 1);  // forward
  EXPECT_EQ(cudnn_parts(backward(of(1, 32, 8, 2048, 128))).count(), 1);
  EXPECT_EQ(cudnn_parts(backward(of(10, 8, 8, 2048, 128))).of_batch, 3);
  EXPECT_EQ(cudnn_parts(backward(of(5, 32, 8, 4096, 128))).of_heads, 4);
  EXPECT_EQ(cudnn_parts(backward(of(1, 33, 33, 8192, 128))).of_heads, 17);
  EXPECT_EQ(cudnn_parts(backward(of(1, 32, 8, 8192, 128))).of_heads, 8);
  EXPECT_EQ(cudnn_parts(backward(of(1, 32, 8, 8320, 128))).count(), 0);
  // The lse of 14 heads of 4,095 tokens has no multiple of 16 bytes; 32 heads of four do.
  EXPECT_EQ(cudnn_parts(backward(of(2, 14, 14, 4095, 64))).count(), 0);
  EXPECT_EQ(cudnn_parts(backward(of(1, 14, 14, 4095, 64))).count(), 1);
  EXPECT_EQ(cudnn_parts(backward(of(1, 32, 8, 4095, 64))).count(), 4);
  for (const CudnnAttention& a : {of(10, 8, 8, 2048, 128), of(5, 32, 8, 4096, 128), of(3, 32, 8, 8192, 128),
                                  of(1, 33, 33, 8192, 64), of(2, 31, 31, 8192, 128), of(7, 6, 2, 9000, 96)}) {
    const std::int64_t most = check_parts(backward(a));
    EXPECT_LE(most, kMaxCudnnScoreBytes);
    EXPECT_GT(2 * most, kPartScoreBytes) << "parts are smaller than necessary";
  }
}

TEST(CudnnAttentionShapeTest, WorkspaceFollowsTheRequestedBackend) {
  AttentionHeads heads{.heads = 32, .kv_heads = 8, .seq = 2048, .backend = AttentionBackend::cudnn};
  const auto bytes = [&] { return attention_backward_workspace_bytes(2048, heads, DType::bf16, 128); };
  EXPECT_EQ(static_cast<std::int64_t>(bytes()),
            cudnn_workspace_bytes(cudnn_attention(true, 2048, heads, DType::bf16, 128)));
  heads.backend = AttentionBackend::mma;
  EXPECT_LT(bytes(), std::size_t{200} << 20);
}

TEST(AttentionPlansTest, RoundTripThroughText) {
  AttentionPlan one{of(1, 32, 8, 2048, 128), "eng2_k24=7"}, other{of(2, 12, 12, 1000, 64), "eng6_k24=26"};
  other.attention.backward = true;
  other.attention.causal = false;
  other.attention.dtype = DType::f16;
  other.attention.row_heads = other.attention.row_kv_heads = 24;
  const std::vector<AttentionPlan> choices = {one, other};
  const std::string text = to_text(choices);
  const auto again = parse_attention_plans("# a title\n0 0 0 f32 a GEMM\n" + text);
  ASSERT_TRUE(again.has_value()) << again.status().message();
  EXPECT_EQ(*again, choices);
  EXPECT_EQ(to_text({}), "");
  const std::size_t first = text.find('\n') + 1, last = text.find(" eng2");
  for (std::size_t cut = first + 10; cut <= last; ++cut)
    EXPECT_THAT(std::string(parse_attention_plans(text.substr(0, cut)).status().message()),
                HasSubstr("line 2 is not an attention and its plan"))
        << text.substr(first, cut - first);
}

}  // namespace
}  // namespace strata::kernels::detail
