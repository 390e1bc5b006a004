#pragma once

#include <algorithm>
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
  std::int64_t row_heads = 0, row_kv_heads = 0;  ///< the heads of a row, of which it has a part; 0: all

  constexpr std::int64_t heads_of_row() const noexcept { return row_heads > 0 ? row_heads : heads; }
  constexpr std::int64_t kv_heads_of_row() const noexcept {
    return row_kv_heads > 0 ? row_kv_heads : kv_heads;
  }
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
/// Maximum workspace of one part of the op. Backward stores the gradients of scores, and the gradients of
/// keys and values for each query head; kRest covers alignment and counters of the engines. These are the
/// sizes that cuDNN's engines for compute capability 8.0, 9.0 and 10.0 report; cudnn_attention_test checks
/// them if cuDNN is installed.
constexpr std::int64_t cudnn_workspace_bytes(const CudnnAttention& a) noexcept {
  constexpr std::int64_t kRest = std::int64_t{1} << 20;
  if (!a.backward) return kRest;
  const std::int64_t tokens = a.batch * a.heads * cudnn_rows(a);
  return cudnn_score_bytes(a) + tokens * a.d * (a.kv_heads < a.heads ? 4 : 0) + tokens * 4 + kRest;
}

/// Backward runs in parts, one after the other in the same workspace, each of which stores at most this many
/// bytes of score gradients: two heads of 8 Ki tokens, whose tiles of 128 rows occupy a GPU. More would only
/// take memory from what else a step needs.
inline constexpr std::int64_t kPartScoreBytes = std::int64_t{256} << 20;
/// The query heads of one key head are not divided, so they may store more, but no more than this.
inline constexpr std::int64_t kMaxCudnnScoreBytes = 2 * kPartScoreBytes;

/// The parts of an attention: groups of sequences, or groups of key heads of one sequence, each with all of
/// its query heads. Groups differ by at most one, so there are few plans.
struct CudnnParts {
  std::int64_t of_batch = 1;  ///< groups of sequences
  std::int64_t of_heads = 1;  ///< groups of the key heads of each
  constexpr std::int64_t count() const noexcept { return of_batch * of_heads; }
};
/// No parts if one sequence's query heads of one key head are too many already, or if the rows of lse of
/// parts would not all begin at multiples of 16 bytes, as cuDNN wants its tensors.
constexpr CudnnParts cudnn_parts(const CudnnAttention& a) noexcept {
  if (!a.backward || cudnn_score_bytes(a) <= kPartScoreBytes) return {};
  const std::int64_t of_sequence = cudnn_score_bytes(a) / a.batch, of_key_head = of_sequence / a.kv_heads;
  const auto groups = [](std::int64_t all, std::int64_t bytes_of_one) {
    const std::int64_t fit = std::max<std::int64_t>(1, kPartScoreBytes / bytes_of_one);
    return (all + fit - 1) / fit;
  };
  if (of_key_head > kMaxCudnnScoreBytes) return {0, 0};
  const CudnnParts parts = of_sequence > kPartScoreBytes
                               ? CudnnParts{a.batch, groups(a.kv_heads, of_key_head)}
                               : CudnnParts{groups(a.batch, of_sequence), 1};
  const std::int64_t lse_values = (parts.of_heads > 1 ? a.heads / a.kv_heads : a.heads) * a.seq;
  if (lse_values % 4 == 0) return parts;
  return cudnn_score_bytes(a) <= kMaxCudnnScoreBytes ? CudnnParts{} : CudnnParts{0, 0};
}
/// Part `i` of an attention, and the elements before it in a row's or a tensor's parts.
struct CudnnPart {
  CudnnAttention attention;
  std::int64_t q = 0, k = 0, v = 0;  ///< in qkv
  std::int64_t out = 0, lse = 0;
};
constexpr CudnnPart cudnn_part(const CudnnAttention& a, const CudnnParts& parts, std::int64_t i) noexcept {
  const std::int64_t of_batch = i / parts.of_heads, of_heads = i % parts.of_heads,
                     group = a.heads / a.kv_heads;
  const std::int64_t entry = of_batch * a.batch / parts.of_batch,
                     end_entry = (of_batch + 1) * a.batch / parts.of_batch,
                     kv_head = of_heads * a.kv_heads / parts.of_heads,
                     end_kv_head = (of_heads + 1) * a.kv_heads / parts.of_heads;
  CudnnPart part = {a};
  part.attention.batch = end_entry - entry;
  part.attention.kv_heads = end_kv_head - kv_head;
  part.attention.heads = part.attention.kv_heads * group;
  if (parts.of_heads > 1) {
    part.attention.row_heads = a.heads;
    part.attention.row_kv_heads = a.kv_heads;
  }
  const std::int64_t row = entry * a.seq, width = a.heads + 2 * a.kv_heads, head = kv_head * group;
  part.q = (row * width + head) * a.d;
  part.k = (row * width + a.heads + kv_head) * a.d;
  part.v = part.k + a.kv_heads * a.d;
  part.out = (row * a.heads + head) * a.d;
  part.lse = (entry * a.heads + head) * a.seq;
  return part;
}
/// Maximum workspace of all parts: of the largest, which the last one is.
constexpr std::int64_t cudnn_workspace_bytes(const CudnnAttention& a, const CudnnParts& parts) noexcept {
  return cudnn_workspace_bytes(cudnn_part(a, parts, parts.count() - 1).attention);
}

constexpr bool cudnn_supports(const CudnnAttention& a, const AttentionHeads& s) noexcept {
  constexpr std::int64_t kMaxSeq = 1 << 18, kMaxHeads = 1 << 20;  // sizes computed from these fit in 64 bits
  return s.backend == AttentionBackend::cudnn && !s.alibi && s.window == 0 && s.softcap == 0 &&
         s.scale == 0 && (a.dtype == DType::bf16 || a.dtype == DType::f16) && a.d >= 16 && a.d <= 128 &&
         a.d % 8 == 0 && a.seq >= 2 && a.seq <= kMaxSeq && a.batch * a.heads <= kMaxHeads &&
         cudnn_parts(a).count() > 0;
}

}  // namespace strata::kernels::detail
