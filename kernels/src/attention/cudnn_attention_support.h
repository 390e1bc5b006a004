#pragma once

#include <compare>
#include <cstdint>

#include <strata/kernels/attention_heads.h>
#include <strata/runtime/dtype.h>

/// Which heads AttentionBackend::cudnn supports, and the workspace that it needs. Both depend only on the
/// shape, because memory is also planned on machines without a GPU.
namespace strata::kernels::detail {

/// The shape of one attention that cuDNN computes, forward or backward.
struct CudnnAttention {
  bool backward = false, causal = true;
  DType dtype = DType::bf16;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, seq = 0, d = 0;
  friend auto operator<=>(const CudnnAttention&, const CudnnAttention&) = default;
};

constexpr CudnnAttention cudnn_attention(bool backward, std::int64_t tokens, const AttentionHeads& s,
                                         DType dtype, std::int64_t d) noexcept {
  return {.backward = backward,
          .causal = s.causal,
          .dtype = dtype,
          .batch = s.seq > 0 ? tokens / s.seq : 0,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .seq = s.seq,
          .d = d};
}

/// Rows of scores, rounded up to tiles of 128.
constexpr std::int64_t cudnn_rows(const CudnnAttention& a) noexcept { return (a.seq + 127) / 128 * 128; }
/// Bytes of score gradients that cuDNN's deterministic backward stores.
constexpr std::int64_t cudnn_score_bytes(const CudnnAttention& a) noexcept {
  return a.batch * a.heads * cudnn_rows(a) * cudnn_rows(a) * 2;
}
/// Maximum workspace of the op. Backward stores the gradients of scores, and the gradients of keys and values
/// for each query head; kRest covers alignment and counters of the engines. These are the sizes that cuDNN's
/// engines for compute capability 8.0, 9.0 and 10.0 report; cudnn_attention_test checks them if cuDNN is
/// installed.
constexpr std::int64_t cudnn_workspace_bytes(const CudnnAttention& a) noexcept {
  constexpr std::int64_t kRest = std::int64_t{1} << 20;
  if (!a.backward) return kRest;
  const std::int64_t tokens = a.batch * a.heads * cudnn_rows(a);
  return cudnn_score_bytes(a) + tokens * a.d * (a.kv_heads < a.heads ? 4 : 0) + tokens * 4 + kRest;
}

/// Backward uses AttentionBackend::mma if cuDNN's would store more bytes of score gradients than this.
inline constexpr std::int64_t kMaxCudnnScoreBytes = std::int64_t{2} << 30;

constexpr bool cudnn_supports(const CudnnAttention& a, const AttentionHeads& s) noexcept {
  constexpr std::int64_t kMaxSeq = 1 << 18, kMaxHeads = 1 << 20;  // sizes computed from these fit in 64 bits
  return s.backend == AttentionBackend::cudnn && !s.alibi && s.window == 0 && s.softcap == 0 &&
         s.scale == 0 && (a.dtype == DType::bf16 || a.dtype == DType::f16) && a.d >= 16 && a.d <= 128 &&
         a.d % 8 == 0 && a.seq >= 2 && a.seq <= kMaxSeq && a.batch * a.heads <= kMaxHeads &&
         (!a.backward || cudnn_score_bytes(a) <= kMaxCudnnScoreBytes);
}

}  // namespace strata::kernels::detail
