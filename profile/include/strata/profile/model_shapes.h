#pragma once

#include <string>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// Parses a parameter count such as 7b, 1.3B, 350m or 13e9 (K, M, B = 1e9, T; case is ignored). Errors:
/// `invalid`.
Result<double> parse_parameter_count(const std::string& text);
/// The model.* settings of a LLaMA-like model with about `parameters` parameters. As in published models,
/// heads are 128 wide (64 below 1e8
/// parameters), the feed-forward layer is about 8/3 of the hidden size, and the hidden size is about
/// 128 times the number of layers; the feed-forward size absorbs the rounding of the others. Errors:
/// `invalid` below 1e6 or above 1e13.
Result<std::vector<std::string>> llama_settings_for(double parameters);

}  // namespace strata
