#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include <strata/runtime/backend/backend.h>

namespace strata::test {

/// Zeroed memory, aligned as direct files require.
class AlignedBuffer {
 public:
  static constexpr std::size_t kAlign = 4096;
  explicit AlignedBuffer(std::size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(kAlign)))) {
    std::fill_n(data_, bytes_, std::byte{0});
  }
  /// Filled with a sequence that depends on `seed`.
  AlignedBuffer(std::size_t bytes, std::uint64_t seed) : AlignedBuffer(bytes) { fill(seed); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { ::operator delete[](data_, std::align_val_t(kAlign)); }

  BufferView view() const noexcept { return {data_, bytes_}; }
  void fill(std::uint64_t seed) {
    std::uint64_t state =
        seed * 0x9E3779B97F4A7C15u + 1;  // a cheap generator: Philox would dominate the tests' run time
    for (std::size_t i = 0; i < bytes_; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      data_[i] = static_cast<std::byte>(state >> 56);
    }
  }
  friend bool operator==(const AlignedBuffer& a, const AlignedBuffer& b) {
    return a.bytes_ == b.bytes_ && std::equal(a.data_, a.data_ + a.bytes_, b.data_);
  }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

}  // namespace strata::test
