#pragma once

#include <cstdio>
#include <string_view>

#include <strata/runtime/status.h>

#include "args.h"

namespace strata::cli {

/// Writes a text as it is, but on a terminal as terminal_text() has it: names and what models say may have
/// any characters.
void print(std::FILE* to, std::string_view text);
/// For the program's own escape sequences; what comes from elsewhere must be a terminal_text().
void print_exact(std::FILE* to, std::string_view text);
bool is_terminal(std::FILE* stream);

/// Prints an error: one line, or the number of problems and one line for each. Returns its exit code.
int print_error(const Args& args, std::string_view verb, const Status& status);

}  // namespace strata::cli
