// The bytes of a GGUF file before its tensors, as docs/gguf.md of ggml-org/ggml describes version 3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/io/gguf/format.h>

namespace strata {

inline constexpr std::uint64_t kGgufAlignment = 32;  // the alignment of the data and of each tensor in it

/// The key-value pairs, encoded as they are added. Keys must differ.
class GgufMetadata {
 public:
  void add_u32(std::string_view key, std::int64_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_text(std::string_view key, std::string_view value);
  void add_bools(std::string_view key, const std::vector<bool>& values);
  void add_i32s(std::string_view key, std::span<const std::int32_t> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  void add_texts(std::string_view key, std::span<const std::string> values);

  std::uint64_t count() const noexcept { return count_; }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void begin(std::string_view key, std::uint32_t type);
  void begin_list(std::string_view key, std::uint32_t type, std::size_t n);

  std::uint64_t count_ = 0;
  std::string bytes_;
};

/// Values of a row that are encoded together, and their bytes.
struct GgufBlock {
  std::uint64_t elems = 1, bytes = 4;
};
GgufBlock gguf_block(GgufFormat format) noexcept;

/// Bytes of so many values, which are whole blocks.
inline std::uint64_t gguf_bytes(GgufFormat format, std::uint64_t n_elems) noexcept {
  const GgufBlock block = gguf_block(format);
  return n_elems / block.elems * block.bytes;
}

/// Name, shape and format of a tensor.
struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> shape;  ///< [rows, columns], [experts, rows, columns] or [n], reversed in the
                                     ///< file; columns are whole blocks of the format
  GgufFormat format = GgufFormat::f32;

  std::uint64_t columns() const noexcept { return shape.back(); }
  std::uint64_t n_elems() const noexcept;
  std::uint64_t bytes() const noexcept { return gguf_bytes(format, n_elems()); }
};

/// Zeros that follow `bytes` bytes up to the next aligned offset.
constexpr std::uint64_t gguf_padding(std::uint64_t bytes) noexcept {
  return (kGgufAlignment - bytes % kGgufAlignment) % kGgufAlignment;
}

/// Everything before the data of the tensors, padded: the first tensor's data follows, and after each
/// tensor's data come gguf_padding(bytes()) zeros.
std::string gguf_header(const GgufMetadata& metadata, std::span<const GgufTensor> tensors);

}  // namespace strata
