#pragma once

#include <string_view>
#include <vector>

#include <strata/kernels/values/attention_backend.h>
#include <strata/runtime/status.h>

namespace strata::kernels {

/// The backends of attention on a GPU in order of preference: each op takes the first that supports it
/// (effective_attention_backend), and mma if none does.
struct AttentionOrder {
  std::vector<AttentionBackend> forward, backward;
};
/// "cudnn,wgmma,mma" for both directions, or "cudnn,mma/wgmma,mma" for forward and backward. Errors:
/// `invalid` with the name that is none.
Result<AttentionOrder> parse_attention_order(std::string_view text);

}  // namespace strata::kernels
