#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace strata {

/// The text of a novel in examples/data/austen; the empty string if it is missing, which fails the calling
/// test.
inline std::string austen(const std::string& name) {
  std::ifstream in(std::string(STRATA_SOURCE_DIR) + "/examples/data/austen/" + name + ".txt",
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace strata
