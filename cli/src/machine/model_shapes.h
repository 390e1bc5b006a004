#pragma once

#include <string>
#include <vector>

#include <strata/runtime/status.h>

namespace strata::cli {

/// A number of parameters as people write it: 7b, 1.3B, 350m, 13e9; thousands, millions, billions (1e9),
/// trillions. Errors: `invalid`.
Result<double> parse_parameter_count(const std::string& text);
/// The settings of a LLaMA-like model of about `parameters`: heads of 128, a feed-forward layer of about 8/3
/// of the width, and a width of about 128 times the layers, as such models have; the feed-forward layer makes
/// up what the rounding of these leaves. Errors: `invalid` below 1e7 or above 1e13.
Result<std::vector<std::string>> llama_settings_for(double parameters);

}  // namespace strata::cli
