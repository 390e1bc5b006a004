#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace strata {

/// e4m3 and e5m2 (float8.h) are only ever operands of GEMMs.
enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, u16, u8, e4m3, e5m2 };

constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      return 1;
  }
  return 0;
}
/// Whether activations, parameters and gradients may be stored in `dtype`; arithmetic is f32 in any case.
constexpr bool is_stored_dtype(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}
constexpr std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::u16:
      return "u16";
    case DType::u8:
      return "u8";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
  }
  return "unknown";
}

}  // namespace strata
