#pragma once

#include <string>
#include <vector>

namespace strata::cli {

struct VerifyVariant {
  std::string name;
  std::vector<std::string> overrides;  ///< key=value, above the configuration
};
/// The ways to run that strata verify compares with the first one. Every key that a plan decides has a
/// variant that sets it, except those of ranks.
std::vector<VerifyVariant> verify_variants();

}  // namespace strata::cli
