#pragma once

namespace strata {

/// The attributes that all GEMMs contain.
struct GemmAttrs {
  bool workspace = false;  ///< the last output is the GEMM's workspace
  friend bool operator==(const GemmAttrs&, const GemmAttrs&) = default;
};

}  // namespace strata
