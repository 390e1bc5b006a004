#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace strata {

/// A novel of examples/data/austen; an empty string fails the test that uses it.
inline std::string austen(const std::string& name) {
  std::ifstream in(std::string(STRATA_SOURCE_DIR) + "/examples/data/austen/" + name + ".txt",
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace strata
