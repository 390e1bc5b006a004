#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors_format.h>
#include <strata/runtime/status.h>

namespace strata {

/// Writes a safetensors file in parts, in any order, by one writer or by several: one creates the file, the
/// others join it, each writes and syncs its parts, and then the one that created it finishes it. Until then
/// no reader accepts the file. One thread at a time.
class SafetensorsPartsWriter {
 public:
  /// Creates `path`, which must not exist yet, and reserves its whole size. Errors: `invalid` for specs that
  /// a reader would refuse, naming the problem; `no_space`, `io_error`.
  static Result<std::unique_ptr<SafetensorsPartsWriter>> create(
      Io& io, const std::string& path, const std::vector<TensorSpec>& specs,
      const std::map<std::string, std::string>& metadata);
  /// Opens a file that another writer has created with the same specs and metadata. Errors: `invalid` if it
  /// has another size, `io_error`.
  static Result<std::unique_ptr<SafetensorsPartsWriter>> join(
      Io& io, const std::string& path, const std::vector<TensorSpec>& specs,
      const std::map<std::string, std::string>& metadata);

  /// Writes bytes of tensor `index` of the specs, from offset `begin` of its data. Errors: `invalid` past its
  /// end; `no_space`, `io_error`.
  Status write(std::size_t index, std::uint64_t begin, std::span<const std::byte> bytes);
  /// Makes what this writer has written durable.
  Status sync() { return file_->sync(); }
  /// Completes the file, for which all writers have synced all tensors; it is durable when this returns.
  Status finish();
  std::uint64_t file_bytes() const noexcept { return file_bytes_; }
  /// Digest of everything before the tensors' data, as finish() writes it.
  const Digest& header_digest() const noexcept { return header_digest_; }

 private:
  SafetensorsPartsWriter() = default;
  static Result<std::unique_ptr<SafetensorsPartsWriter>> open(
      Io& io, const std::string& path, const std::vector<TensorSpec>& specs,
      const std::map<std::string, std::string>& metadata, bool creates);

  std::unique_ptr<File> file_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t data_begin_ = 0, file_bytes_ = 0;
  Digest header_digest_{};
};

}  // namespace strata
