#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

#include "cudnn_attention_support.h"

namespace strata::kernels::detail {

/// By which of cuDNN's plans, in its own words, which another version of it does not understand.
struct AttentionPlan {
  CudnnAttention attention;
  std::string plan;
  friend bool operator==(const AttentionPlan&, const AttentionPlan&) = default;
};

/// One line an attention.
std::string to_text(const std::vector<AttentionPlan>& choices);
/// Of the lines about attention. Errors: `invalid` naming the first that is none of to_text's.
Result<std::vector<AttentionPlan>> parse_attention_plans(std::string_view text);

}  // namespace strata::kernels::detail
