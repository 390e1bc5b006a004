#pragma once

#include <string>

#include "describe/command_help.h"

namespace strata::cli {

/// All verbs with their arguments, options and defaults, and the exit codes, as Markdown: docs/commands.md.
std::string command_reference(const CommandHelp& strata);

}  // namespace strata::cli
