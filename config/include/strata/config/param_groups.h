#pragma once

#include <string>

#include <strata/session/session_options.h>

namespace strata {

/// One item of optim.param_groups: "PATTERN lr_scale=0.1 weight_decay=0", either setting or both. Errors:
/// `invalid`.
Result<ParamGroup> parse_param_group(const std::string& text);

}  // namespace strata
