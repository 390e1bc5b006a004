#pragma once

#include <strata/graph/op_attrs.h>
#include <strata/kernels/attention.h>

namespace strata::detail {

/// The arguments of the kernels from those of an instruction.
kernels::AttentionHeads attention_heads(const AttentionAttrs& attrs);

}  // namespace strata::detail
