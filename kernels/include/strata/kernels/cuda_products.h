#pragma once

#include <string>

namespace strata::kernels {

/// What products on a GPU are made with: "cuBLASLt 13.1.0". Its version is part of what decides their bits.
/// Where there is none: "no cuBLASLt". Loads the library.
std::string cuda_products();

}  // namespace strata::kernels
