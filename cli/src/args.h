#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace strata::cli {

/// A parsed command line and what surrounds it. Nothing below the parser reads argv, environ or stdout itself.
struct Args {
  std::string action;                    ///< of `config`: show, check
  std::vector<std::string> items;        ///< FILE and key=value, in the order given
  std::string preset;
  std::string nvme_dir;
  bool json = false;
  bool origin = false;
  std::vector<std::string> environment;  ///< "NAME=value"
  std::FILE* out = stdout;
  std::FILE* err = stderr;
};

}  // namespace strata::cli
