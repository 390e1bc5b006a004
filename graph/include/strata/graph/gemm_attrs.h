#pragma once

namespace strata {

/// What the attributes of every GEMM contain.
struct GemmAttrs {
  bool workspace = false;  ///< the last output is the GEMM's workspace
  friend bool operator==(const GemmAttrs&, const GemmAttrs&) = default;
};

}  // namespace strata
