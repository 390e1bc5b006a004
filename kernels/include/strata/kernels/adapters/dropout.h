#pragma once

#include <cstdint>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

/// y = x / (1 - p) where an element is kept, else 0 (Srivastava et al. 2014, JMLR 15, scaled in training as
/// in PyTorch). Whether element j of a row is kept is a pure function of the row's key, of `stream`, which
/// tells apart the dropouts of a program, and of j: Philox4x32-10 of (key, j / 4, stream) gives 32 bits each
/// for four elements, of which an element is dropped if they are below p 2^32. So the derivative is the same
/// op on dy, a recomputed result has the same bits, and none of them depends on how rows are split among
/// calls. Bits do not depend on the instruction set.
struct DropoutArgs {
  TensorView x;     ///< stored dtype [..., N], T rows
  TensorView keys;  ///< i32 [T, 2]: the key of each row, 64 random bits
  TensorView y;     ///< as x, written; may be x
  float p = 0;      ///< 0 to below 1
  std::uint32_t stream = 0;
};
Status dropout_async(Backend& backend, Stream& stream, const DropoutArgs& args);
void dropout_host(const DropoutArgs& args, ThreadPool& pool);

}  // namespace strata::kernels
