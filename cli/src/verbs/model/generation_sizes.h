#pragma once

#include <cstdint>

namespace strata::cli {

inline constexpr std::int64_t kUsualContext = 4096;  ///< tokens, unless the model supports fewer
/// Tokens of a prompt in one pass; more is hardly faster and uses memory.
inline constexpr std::int64_t kPrefillRows = 128;

}  // namespace strata::cli
