#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/dtype.h>

namespace strata {

/// Limits on what one file may contain, checked while the header is read and before any allocation depends on
/// it.
inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes =
    100'000'000;  // the limit of the reference implementation
inline constexpr std::size_t kSafetensorsMaxTensors = std::size_t{1} << 20;
inline constexpr std::size_t kSafetensorsMaxNameBytes = 4096;
inline constexpr std::size_t kSafetensorsMaxRank = 64;

/// "F32" for DType::f32, and so on.
std::string_view safetensors_dtype(DType dtype) noexcept;
/// The DType of "F32", "BF16", ...; nullopt for dtypes that strata stores but does not compute with ("I64",
/// "F8_E4M3").
std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept;

/// One tensor of an open file. `offset` counts from the first byte after the header.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;  ///< outermost first; empty for a scalar
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// A tensor to write.
struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
};

}  // namespace strata
