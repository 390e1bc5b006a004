#pragma once

#include <string_view>

#include <strata/runtime/status.h>

#include "jinja/ast.h"

namespace strata::detail::jinja {

/// Parses a template. Errors: `invalid` for what is no Jinja, `unsupported` for what these templates do not
/// use (inheritance, includes), with the line.
Result<Body> parse(std::string_view source);

}  // namespace strata::detail::jinja
