#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

#include "attention/cudnn_attention_support.h"

namespace strata::kernels::detail {

/// The cuDNN plan that computes an attention, under cuDNN's own name, which other cuDNN versions do not
/// understand.
struct AttentionPlan {
  CudnnAttention attention;
  std::string plan;
  friend bool operator==(const AttentionPlan&, const AttentionPlan&) = default;
};

/// One line per attention.
std::string to_text(const std::vector<AttentionPlan>& choices);
/// Parses the lines about attention and skips all others. Errors: `invalid`, naming the first attention line
/// that to_text() cannot have written.
Result<std::vector<AttentionPlan>> parse_attention_plans(std::string_view text);

}  // namespace strata::kernels::detail
