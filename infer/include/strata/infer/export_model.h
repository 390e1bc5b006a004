#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <strata/infer/export_request.h>
#include <strata/runtime/status.h>

namespace strata {

/// Writes a model for other programs, and returns a text that says what was written. `note` hears of what
/// these do differently. Errors: `invalid` and `unsupported` with the option; those of reading and writing,
/// after which nothing is left at `out_dir`.
Result<std::string> export_model(const ExportRequest& request,
                                 const std::function<void(std::string_view)>& note);

}  // namespace strata
