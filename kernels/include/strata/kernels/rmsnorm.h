#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// y = x * rstd * (weight + offset) for each row, with rstd = 1 / sqrt(mean(x^2) + eps) (Zhang & Sennrich
/// 2019). Gemma's weights are learnt as their distance from 1, and there offset is 1. If `added` is given,
/// the op normalizes x + added, rounded once to the stored dtype; the bits are those of a separate addition
/// before the norm, without its pass over memory.
struct RmsnormForwardArgs {
  TensorView x;       ///< stored dtype (embedding.h) [..., h], T rows
  TensorView weight;  ///< stored dtype [h]
  TensorView y;       ///< as x, written
  TensorView rstd;    ///< f32, T values, written
  float eps = 1e-6f;
  TensorView added = {};  ///< as x, or none
  TensorView sum = {};    ///< as x, written: x + added; may be x or added. None without `added`
  float offset = 0.0f;
};
Status rmsnorm_forward_async(Backend& backend, Stream& stream, const RmsnormForwardArgs& args);
void rmsnorm_forward_host(const RmsnormForwardArgs& args, ThreadPool& pool);

struct RmsnormBackwardArgs {
  TensorView x;        ///< stored dtype [..., h], T rows
  TensorView weight;   ///< stored dtype [h]
  TensorView rstd;     ///< f32, T values, from the forward
  TensorView dy;       ///< as x
  TensorView dx;       ///< as x, written; may be dy
  TensorView dweight;  ///< f32 or stored dtype [h], written
  bool accumulate_dweight = false;
  BufferView workspace;      ///< rmsnorm_backward_workspace_bytes(T, h), 4-aligned
  TensorView residual = {};  ///< as x, or none: added to dx before dx is rounded; may be dx or dy
  float offset = 0.0f;
};
std::size_t rmsnorm_backward_workspace_bytes(std::int64_t rows, std::int64_t hidden) noexcept;
Status rmsnorm_backward_async(Backend& backend, Stream& stream, const RmsnormBackwardArgs& args);
void rmsnorm_backward_host(const RmsnormBackwardArgs& args, ThreadPool& pool);

/// RMSNorm of segments of qkv rows, each normalized separately; the values (v) are copied, or normalized
/// without a weight (Gemma 4). A row has `heads` segments of n elements, then `kv_heads` of m. A segment is
/// one head (Qwen3: n = m = d), or all query heads form one segment and all key heads another (OLMo 2).
struct QkNormForwardArgs {
  TensorView qkv;       ///< stored dtype [..., heads n + 2 kv_heads m], T rows: q | k | v
  TensorView q_weight;  ///< stored dtype [n]
  TensorView k_weight;  ///< stored dtype [m]
  TensorView y;         ///< as qkv, written; may be qkv
  TensorView rstd;      ///< f32, T * (heads + kv_heads) values, written; kv_heads more with `values`
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  float eps = 1e-6f;
  float offset = 0.0f;  ///< added to both weights, as in RmsnormForwardArgs
  bool values = false;  ///< the segments of v are normalized, too
};
Status qk_norm_forward_async(Backend& backend, Stream& stream, const QkNormForwardArgs& args);
void qk_norm_forward_host(const QkNormForwardArgs& args, ThreadPool& pool);

struct QkNormBackwardArgs {
  TensorView qkv;        ///< from the forward
  TensorView q_weight;   ///< stored dtype [n]
  TensorView k_weight;   ///< stored dtype [m]
  TensorView rstd;       ///< from the forward
  TensorView dy;         ///< as qkv
  TensorView dx;         ///< as qkv, written; may be dy
  TensorView dq_weight;  ///< f32 or stored dtype [n], written
  TensorView dk_weight;  ///< f32 or stored dtype [m], written
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  bool accumulate_dq_weight = false;
  bool accumulate_dk_weight = false;
  BufferView workspace;  ///< qk_norm_backward_workspace_bytes(T, n, m), 4-aligned
  float offset = 0.0f;
  bool values = false;  ///< as in the forward
};
std::size_t qk_norm_backward_workspace_bytes(std::int64_t rows, std::int64_t q_elems,
                                             std::int64_t k_elems) noexcept;
Status qk_norm_backward_async(Backend& backend, Stream& stream, const QkNormBackwardArgs& args);
void qk_norm_backward_host(const QkNormBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
