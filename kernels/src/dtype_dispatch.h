#pragma once

#include <type_traits>

#include <strata/runtime/assert.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

/// Calls body(std::type_identity<T>{}) with the C++ type of a stored dtype that was checked.
template <class Body>
void dispatch_dtype(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32:
      return body(std::type_identity<float>{});
    case DType::bf16:
      return body(std::type_identity<bf16>{});
    case DType::f16:
      return body(std::type_identity<f16>{});
    default:
      STRATA_ASSERT(false, "unsupported stored dtype ", to_string(dtype));
  }
}

}  // namespace strata::kernels::detail
