// Takes numbers and texts from the front of a GGUF file.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Every length is compared with the rest of the file before anything is allocated for it.
class GgufHeaderReader {
 public:
  GgufHeaderReader(File& file, std::uint64_t size) : file_(file), size_(size) {}

  /// Offset of the next byte.
  std::uint64_t at() const noexcept { return at_; }
  std::uint64_t size() const noexcept { return size_; }
  /// Errors: `corrupt` if the file ends before; `what` is named.
  template <class T>
  Result<T> number(std::string_view what) {
    T value{};
    STRATA_TRY(take(std::as_writable_bytes(std::span(&value, 1)), what));
    return value;
  }
  /// A length of 8 bytes and so many bytes of UTF-8, at most `limit`.
  Result<std::string> text(std::string_view what, std::uint64_t limit);
  /// Passes over so many bytes. Errors: as for number().
  Status skip(std::uint64_t bytes, std::string_view what);
  /// Refuses a count of things of at least `bytes_each` that the rest of the file cannot hold.
  Status check_count(std::uint64_t n, std::uint64_t bytes_each, std::string_view what) const;
  Status corrupt_at(std::uint64_t offset, std::string_view why) const;

 private:
  Status take(std::span<std::byte> into, std::string_view what);

  File& file_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0, buffer_begin_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace strata::detail
