#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace strata::cli {

/// The whole command: parses, runs the verb, returns the exit code. Whatever is thrown ends here.
/// `arguments` are those after the program's name; `environment` is "NAME=value".
int run_command_line(std::vector<std::string> arguments, std::vector<std::string> environment, std::FILE* out,
                     std::FILE* err) noexcept;

}  // namespace strata::cli
