#pragma once

#include <string>

#include "describe/command_help.h"

namespace strata::cli {

/// The manual page strata(1), or strata-VERB(1) for one of its verbs, as roff.
std::string man_page(const CommandHelp& strata, const std::string& verb, const std::string& version);

}  // namespace strata::cli
