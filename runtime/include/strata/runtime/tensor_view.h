#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <strata/runtime/dtype.h>

namespace strata {

inline constexpr int kMaxRank = 4;

/// Up to four extents, outermost first; a plain value without allocation, so it can be part of queued work.
struct Shape {
  std::array<std::int64_t, kMaxRank> dims{};
  std::int32_t rank = 0;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> extents) {
    for (const std::int64_t extent : extents)
      if (rank < kMaxRank) dims[static_cast<std::size_t>(rank++)] = extent;
  }
  /// A negative `i` counts from the end: dim(-1) is the innermost.
  constexpr std::int64_t dim(int i) const noexcept {
    return dims[static_cast<std::size_t>(i < 0 ? rank + i : i)];
  }
  constexpr std::int64_t n_elems() const noexcept {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<std::size_t>(i)];
    return n;
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};
/// "[8, 128, 256]"
std::string to_string(const Shape& shape);

/// A non-owning view of a dense row-major tensor.
struct TensorView {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;

  template <class T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data);
  }
  std::int64_t n_elems() const noexcept { return shape.n_elems(); }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(n_elems()) * size_of(dtype); }
};

}  // namespace strata
