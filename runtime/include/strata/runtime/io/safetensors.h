#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors_format.h>
#include <strata/runtime/status.h>

namespace strata {

/// A safetensors file whose header has been checked completely; its tensors are read on demand. Once open,
/// every byte range is known to be product(shape) x dtype size, and the ranges cover the data up to the end
/// of the file without gaps or overlaps. Immutable; read() may be called from any thread. Format:
/// huggingface/safetensors, README "Format".
class SafetensorsFile {
 public:
  /// Errors: `not_found`, `io_error`; `corrupt` for a header that breaks a rule, naming the tensor and the
  /// numbers; `invalid` for a header past a limit; `unsupported` for an unknown dtype.
  static Result<std::unique_ptr<SafetensorsFile>> open(Io& io, const std::string& path,
                                                       OpenMode mode = OpenMode::read);

  /// The tensors in the order of their data.
  const std::vector<SafetensorsEntry>& entries() const noexcept { return entries_; }
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  /// Null if there is no tensor of that name.
  const SafetensorsEntry* find(std::string_view name) const noexcept;
  std::uint64_t file_bytes() const noexcept { return file_bytes_; }
  /// XXH3-128 of everything before the tensors' data. Errors: those of reading it again.
  Result<Digest> header_digest() const;

  /// Reads a whole tensor. Errors: `not_found`; `invalid` if `into` is not exactly the tensor's size;
  /// `corrupt`, `io_error`.
  Status read(std::string_view name, std::span<std::byte> into) const;
  /// Reads `into.size()` bytes from offset `begin` of the tensor, for streaming. Errors: as for read().
  Status read_range(const SafetensorsEntry& entry, std::uint64_t begin, std::span<std::byte> into) const;

 private:
  SafetensorsFile() = default;
  std::unique_ptr<File> file_;
  std::uint64_t data_begin_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::uint32_t> by_name_;  // indices into entries_, sorted by name
  std::map<std::string, std::string> metadata_;
};

/// Writes a safetensors file front to back in the order of the specs, keeping no tensor in memory. The header
/// length, without which no reader accepts the file, is written last, so an unfinished file is never mistaken
/// for a complete one. One thread at a time. The first error sticks.
class SafetensorsWriter {
 public:
  /// Creates `path`, which must not exist yet, and reserves its whole size. Errors: `invalid` for specs that
  /// a reader would refuse, naming the problem; `no_space`, `io_error`.
  static Result<std::unique_ptr<SafetensorsWriter>> create(
      Io& io, const std::string& path, std::vector<TensorSpec> specs,
      const std::map<std::string, std::string>& metadata = {});

  /// Appends the next bytes of data; a piece may be part of a tensor or span several. Errors: `invalid` past
  /// the declared total, `no_space`, `io_error`.
  Status append(std::span<const std::byte> piece);
  /// Completes the file: everything is durable when this returns ok. Errors: `invalid` if bytes are missing,
  /// naming the tensor.
  Status finish();
  /// XXH3-128 of the whole file; valid once finish() has returned ok.
  std::string digest_hex() const;
  std::uint64_t file_bytes() const noexcept { return data_begin_ + data_bytes_; }

 private:
  SafetensorsWriter() = default;
  Status remember_failure(Status status);
  std::string incomplete_tensor() const;

  std::unique_ptr<File> file_;
  std::vector<TensorSpec> specs_;
  std::vector<std::uint64_t> ends_;  // end offset of each spec's data, ascending
  std::uint64_t data_begin_ = 0;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
  Digester digester_;
  bool finished_ = false;
  Status failed_;
};

}  // namespace strata
