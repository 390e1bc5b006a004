#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// The heads of latent attention (DeepSeek-AI 2024, section 2.1): part of each query and key turns with its
/// position, and all heads share that part of a key.
struct LatentHeads {
  std::int32_t heads = 1;
  std::int32_t plain = 0;    ///< elements of queries and keys that do not turn
  std::int32_t rotated = 0;  ///< elements that turn
  std::int32_t value = 0;    ///< elements of a head of values, at most plain + rotated

  constexpr std::int64_t head_dim() const noexcept { return std::int64_t{plain} + rotated; }
  constexpr std::int64_t q_width() const noexcept { return heads * head_dim(); }
  constexpr std::int64_t kv_width() const noexcept { return heads * (std::int64_t{plain} + value); }
  constexpr std::int64_t out_width() const noexcept { return std::int64_t{heads} * value; }
  friend bool operator==(const LatentHeads&, const LatentHeads&) = default;
};

/// Puts queries, keys and values next to each other as attention takes them, q | k | v with heads of
/// head_dim(): what turns comes first in each head of queries and keys, and values are padded with zeros. All
/// tensors have the same dtype (f32, bf16 or f16; see embedding.h).
struct LatentQkvForwardArgs {
  TensorView q;   ///< [T, q_width]: plain | rotated of each head
  TensorView kv;  ///< [T, kv_width]: plain elements of the key | value of each head; default view (rank
                  ///< 0): zeros
  TensorView rotated_key;  ///< [T, rotated]
  TensorView qkv;          ///< [T, 3 q_width], written
  LatentHeads heads;
};
Status latent_qkv_forward_async(Backend& backend, Stream& stream, const LatentQkvForwardArgs& args);
void latent_qkv_forward_host(const LatentQkvForwardArgs& args, ThreadPool& pool);

/// The derivative. That of rotated_key is the sum over the heads in their order, in f32, rounded once.
struct LatentQkvBackwardArgs {
  TensorView dqkv;
  TensorView dq, dkv, drotated_key;  ///< written
  LatentHeads heads;
};
Status latent_qkv_backward_async(Backend& backend, Stream& stream, const LatentQkvBackwardArgs& args);
void latent_qkv_backward_host(const LatentQkvBackwardArgs& args, ThreadPool& pool);

/// y = the first `value` elements of each head of x, which attention has computed of padded values; and the
/// derivative, which pads with zeros.
struct TrimHeadsForwardArgs {
  TensorView x;  ///< [T, q_width]
  TensorView y;  ///< [T, out_width], written
  LatentHeads heads;
};
Status trim_heads_forward_async(Backend& backend, Stream& stream, const TrimHeadsForwardArgs& args);
void trim_heads_forward_host(const TrimHeadsForwardArgs& args, ThreadPool& pool);
struct TrimHeadsBackwardArgs {
  TensorView dy;  ///< [T, out_width]
  TensorView dx;  ///< [T, q_width], written
  LatentHeads heads;
};
Status trim_heads_backward_async(Backend& backend, Stream& stream, const TrimHeadsBackwardArgs& args);
void trim_heads_backward_host(const TrimHeadsBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
