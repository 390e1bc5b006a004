#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

namespace strata::capi {

inline constexpr std::size_t kMaxStructBytes = 4096;  // more is no struct of any version

/// Checks what a caller says of its struct, which may be older or newer than the library's of `own_size`.
/// What the library does not know must be zero, since it cannot do what is asked there. Returns the struct's
/// size. Errors: `invalid`, `unsupported`.
inline Result<std::size_t> check_struct(const void* given, std::size_t own_size, std::string_view name) {
  if (given == nullptr) return Status::error(Code::invalid, str(name, " is null"));
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < sizeof size || size > kMaxStructBytes || size % alignof(std::size_t) != 0)
    return Status::error(Code::invalid,
                         str(name, ".struct_size is ", size, "; set it to sizeof(", name, ")"));
  const auto* const bytes = static_cast<const unsigned char*>(given);
  if (size > own_size && std::any_of(bytes + own_size, bytes + size, [](unsigned char b) { return b != 0; }))
    return Status::error(Code::unsupported, str(name, " has fields that are newer than this library (", size,
                                                " bytes, ", own_size, " known); they must be zero"));
  return size;
}

/// Copies a caller's struct; fields that it lacks are zero.
template <class T>
Result<T> read_struct(const T* given, std::string_view name) {
  STRATA_TRY_ASSIGN(const std::size_t size, check_struct(given, sizeof(T), name));
  T own{};
  std::memcpy(&own, given, std::min(sizeof(T), size));
  own.struct_size = sizeof(T);
  return own;
}

/// Copies `own` to a caller's struct as far as that has room.
template <class T>
Status write_struct(const T& own, T* into, std::string_view name) {
  STRATA_TRY_ASSIGN(const std::size_t size, check_struct(into, sizeof(T), name));
  std::memcpy(into, &own, std::min(sizeof(T), size));
  into->struct_size = size;
  return {};
}

}  // namespace strata::capi
