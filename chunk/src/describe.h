#pragma once

#include <string>

#include <strata/chunk/types.h>
#include <strata/runtime/str.h>

namespace strata::detail {

inline std::string describe(PayloadKey key) { return str("chunk ", key.chunk, " ", to_string(key.payload)); }

}  // namespace strata::detail
