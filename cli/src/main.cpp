#include <unistd.h>

#include "command_line.h"

int main(int argc, char** argv) {
  std::vector<std::string> environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) environment.emplace_back(*variable);
  return strata::cli::run_command_line(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), std::move(environment), stdout, stderr);
}
