#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

#include "attention_cudnn.h"

namespace strata::kernels::detail {

/// By which of cuDNN's plans, in its own words, which another version of it does not understand.
struct AttentionChoice {
  CudnnAttention of;
  std::string plan;
  friend bool operator==(const AttentionChoice&, const AttentionChoice&) = default;
};

/// One line an attention.
std::string to_text(const std::vector<AttentionChoice>& choices);
/// Of the lines about attention. Errors: `invalid` naming the first that is none of to_text's.
Result<std::vector<AttentionChoice>> parse_attention_choices(std::string_view text);

}  // namespace strata::kernels::detail
