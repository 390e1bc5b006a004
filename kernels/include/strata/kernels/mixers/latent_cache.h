#pragma once

#include <cstdint>

#include <strata/kernels/mixers/latent_heads.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// A KV cache of latent attention (DeepSeek-AI 2024, section 2.1) that keeps what keys and values are made of:
// for each position the latent row, behind its norm, and the part of the key that all heads share, turned.
// Keys and values are made again for each call, of the positions that its rows can see: up to the last one of
// each sequence that has a row in the call. All tensors but positions and slots have the same dtype (f32,
// bf16 or f16; see embedding.h).

/// Stores the rows in the cache at their positions, then writes the latent rows of all sequences one behind
/// the other: zeros for those that no row of the call can see.
struct CachedLatentsArgs {
  TensorView latent;  ///< [R, rank]
  TensorView qkv;     ///< [R, 3 q_width], turned; the shared part of a key is at the first key head's front
  TensorView positions;  ///< i32, R values in [0, capacity)
  TensorView slots;      ///< i32, R values in [0, sequences), or -1 for no token
  TensorView cache;      ///< [sequences, capacity, rank + rotated]: read, and written at the rows' positions
  TensorView latents;    ///< [sequences * capacity, rank], written
  LatentHeads heads;
};
/// Errors: `invalid` for wrong shapes. The caller must have checked the values of positions and slots.
Status cached_latents_async(Backend& backend, Stream& stream, const CachedLatentsArgs& args);
void cached_latents_host(const CachedLatentsArgs& args, ThreadPool& pool);

/// Writes keys and values as cached attention reads them, of the positions that the call's rows can see: what
/// turns comes first in each key, and values are padded with zeros.
struct LatentKeysValuesArgs {
  TensorView kv;         ///< [sequences * capacity, kv_width]: plain elements of the key | value of each head
  TensorView positions;  ///< as in CachedLatentsArgs
  TensorView slots;
  TensorView cache;   ///< as in CachedLatentsArgs, read
  TensorView keys;    ///< [sequences, heads, capacity, head_dim], written at those positions
  TensorView values;  ///< as keys
  LatentHeads heads;
};
Status latent_keys_values_async(Backend& backend, Stream& stream, const LatentKeysValuesArgs& args);
void latent_keys_values_host(const LatentKeysValuesArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
