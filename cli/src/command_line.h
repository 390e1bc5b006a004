#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace strata::cli {

/// Runs the whole command: parses the arguments, runs the verb, returns the exit code. Catches all
/// exceptions. `arguments`: without the program's name. `environment`: "NAME=value".
int run_command_line(std::vector<std::string> arguments, std::vector<std::string> environment, std::FILE* out,
                     std::FILE* err) noexcept;

}  // namespace strata::cli
