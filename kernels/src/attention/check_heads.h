#pragma once

#include <cstdint>

#include <strata/dispatch/check.h>

namespace strata::kernels::detail {

/// Requires head counts that fit each other and rows of `width` elements.
template <class Heads>
dispatch::Check& check_heads(dispatch::Check& check, const Heads& heads, std::int64_t width) {
  const bool fit = heads.heads >= 1 && heads.kv_heads >= 1 && heads.heads % heads.kv_heads == 0;
  return check
      .require(fit, heads.heads, " query heads must be a positive multiple of ", heads.kv_heads, " key heads")
      .require(!fit || width % (heads.heads + 2 * heads.kv_heads) == 0, "rows of ", width,
               " are not a multiple of ", heads.heads, " + 2 * ", heads.kv_heads, " heads");
}

}  // namespace strata::kernels::detail
