#pragma once

#include <cstdint>

#include <strata/kernels/values/attention_backend.h>
#include <strata/simd/math/host_device.h>

namespace strata::kernels {

/// Which tokens of every sequence of a batch a tensor has, one after the other: those at [position[i],
/// position[i] + length[i]) for each run i, in ascending order. No runs: all.
struct TokenRuns {
  std::int64_t n = 0;
  std::int64_t position[2] = {}, length[2] = {};

  STRATA_HD bool all() const { return n == 0; }
  STRATA_HD std::int64_t tokens(std::int64_t seq) const { return n == 0 ? seq : length[0] + length[1]; }
  /// The position in its sequence of token `i`.
  STRATA_HD std::int64_t at(std::int64_t i) const {
    if (n == 0) return i;
    return i < length[0] ? position[0] + i : position[1] + i - length[0];
  }
  /// The number of tokens before position `at`.
  STRATA_HD std::int64_t before(std::int64_t at) const {
    if (n == 0) return at > 0 ? at : 0;
    return clamped(at - position[0], length[0]) + (n > 1 ? clamped(at - position[1], length[1]) : 0);
  }

  friend bool operator==(const TokenRuns&, const TokenRuns&) = default;
  STRATA_HD static std::int64_t clamped(std::int64_t n, std::int64_t most) {
    return n < 0 ? 0 : n < most ? n : most;
  }
};

/// The layout of heads in a row, and which keys a query sees. A row of qkv is q | k | v: `heads` query heads,
/// then `kv_heads` key heads, then as many value heads, each of d elements. Query head i reads key head
/// i / (heads / kv_heads) (grouped-query attention: Ainslie et al. 2023).
struct AttentionHeads {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  ///< divides heads
  std::int64_t seq = 0;
  bool causal = true;
  bool alibi = false;  ///< adds slope(head) * (key - query) to a score (Press et al. 2022); causal only
  /// What was asked for. Heads that it does not support use mma. The host ignores it, but needs the workspace
  /// of AttentionBackend::host.
  AttentionBackend backend = AttentionBackend::host;
  std::int64_t window = 0;  ///< a query sees this many keys up to its own; 0: all earlier ones. Causal only
  float softcap = 0;        ///< scores s become softcap tanh(s / softcap); 0: no cap. Not with ALiBi
  float scale = 0;          ///< factor of q k^T; 0: 1 / sqrt(d)
  /// ALiBi needs these if the heads are not all heads of a layer: the number of the layer's heads, and which
  /// of them the first one here is. 0: these are all.
  std::int64_t alibi_heads = 0, alibi_first = 0;
  TokenRuns queries = {}, keys = {};  ///< which of a sequence's `seq` tokens have queries, and keys, here
};
/// The factor of q k^T for heads of `head_dim` elements.
float attention_scale(const AttentionHeads& shape, std::int64_t head_dim) noexcept;
/// The ALiBi slope of a head. With n the largest power of two <= heads, the first n heads have powers of
/// 2^(-8 / n), and the others odd powers of 2^(-4 / n).
float alibi_slope(std::int64_t head, std::int64_t heads) noexcept;
/// The slope of query head `head` of `shape`.
float alibi_slope(const AttentionHeads& shape, std::int64_t head) noexcept;

}  // namespace strata::kernels
