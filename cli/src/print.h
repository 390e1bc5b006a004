#pragma once

#include <cstdio>
#include <string_view>

#include <strata/runtime/status.h>

#include "args.h"

namespace strata::cli {

void print(std::FILE* to, std::string_view text);

/// Prints an error: one line, or the number of problems and one line for each. Returns its exit code.
int print_error(const Args& args, std::string_view verb, const Status& status);

}  // namespace strata::cli
