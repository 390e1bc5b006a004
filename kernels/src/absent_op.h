#pragma once

#include <string_view>

#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

namespace strata::kernels::cuda {

inline Status absent(std::string_view op) {
  return Status::error(Code::unsupported, str(op, ": this build has no CUDA kernel for it"));
}

}  // namespace strata::kernels::cuda
