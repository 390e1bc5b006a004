#include "absent_op.h"
#include "cuda_ops.h"

// Ops that no build has on CUDA yet.
namespace strata::kernels::cuda {

Status cached_attention(Backend&, Stream&, const CachedAttentionArgs&) { return absent("cached_attention"); }

}  // namespace strata::kernels::cuda
