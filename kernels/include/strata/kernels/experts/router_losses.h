#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// Losses of routers over all N rows of logits of a micro-batch, N = T layers:
//   aux = E sum over experts of (C_e / N) (P_e / N), where C_e counts the choices of e and P_e sums its
//     softmax(logits); C has no derivative. Fedus et al. 2021, equations 4 to 6, over the rows of all layers
//     together, as in transformers.
//   z = mean of logsumexp(logits)^2. Zoph et al. 2022, equation 5.
// Layers add what they know to a vector of sums, [2 E + 1] f32: C, P, and the sum of logsumexp^2.

/// sums = before + those of one layer: P and the squares are summed over fixed blocks of tokens.
struct RouterSumsArgs {
  TensorView logits;   ///< f32 [T, E], E at most 1,024
  TensorView offsets;  ///< i32 [E + 1], as route_rows_async() writes them
  TensorView before;   ///< f32 [2 E + 1]; default view (rank 0): zeros
  TensorView sums;     ///< f32 [2 E + 1], written
  BufferView workspace;
};
std::size_t router_sums_workspace_bytes(std::int64_t tokens, std::int64_t experts);
Status router_sums_async(Backend& backend, Stream& stream, const RouterSumsArgs& args);
void router_sums_host(const RouterSumsArgs& args, ThreadPool& pool);

/// The gradient of `before` is dsums itself.
struct RouterSumsBackwardArgs {
  TensorView logits;   ///< f32 [T, E]
  TensorView dsums;    ///< f32 [2 E + 1]
  TensorView dlogits;  ///< f32, bf16 or f16 [T, E], written
};
Status router_sums_backward_async(Backend& backend, Stream& stream, const RouterSumsBackwardArgs& args);
void router_sums_backward_host(const RouterSumsBackwardArgs& args, ThreadPool& pool);

struct RouterLossesArgs {
  TensorView sums;        ///< f32 [2 E + 1]
  TensorView zero;        ///< f32 [1], written: 0
  TensorView losses;      ///< f32 [2], written: aux and z
  std::int64_t rows = 1;  ///< N
};
Status router_losses_async(Backend& backend, Stream& stream, const RouterLossesArgs& args);
void router_losses_host(const RouterLossesArgs& args, ThreadPool& pool);

/// The gradient of aux_coef aux + z_coef z, times a factor.
struct RouterLossesBackwardArgs {
  TensorView sums;    ///< f32 [2 E + 1]
  TensorView factor;  ///< f32 [1]; default view (rank 0): 1
  TensorView dsums;   ///< f32 [2 E + 1], written
  std::int64_t rows = 1;
  float aux_coef = 0, z_coef = 0;
};
Status router_losses_backward_async(Backend& backend, Stream& stream, const RouterLossesBackwardArgs& args);
void router_losses_backward_host(const RouterLossesBackwardArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
