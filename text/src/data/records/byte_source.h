#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Whether the file name is that of gzip data, and the name without ".gz".
bool is_gzip(std::string_view path);
std::string_view without_gz(std::string_view path);

/// The text of a file in blocks, uncompressed if its name ends in .gz. Holds one block. For one thread.
class ByteSource {
 public:
  /// Errors: those of opening.
  static Result<std::unique_ptr<ByteSource>> open(Io& io, const std::string& path);
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// The next bytes, valid until the next call; empty at the end. Errors: those of reading; `corrupt` for
  /// gzip data that is damaged or ends early, with the file.
  virtual Result<std::string_view> next() = 0;
  /// The digest and size of the part of the stored file that was read so far.
  FileDigest file() const { return {digester_.digest(), at_}; }

 protected:
  ByteSource(std::unique_ptr<File> file, std::uint64_t size) : file_(std::move(file)), size_(size) {}
  /// The next bytes of the file; empty at its end.
  Result<std::string_view> next_stored();
  const std::string& path() const noexcept { return file_->path(); }
  std::uint64_t at() const noexcept { return at_; }
  std::uint64_t size() const noexcept { return size_; }

 private:
  std::unique_ptr<File> file_;
  std::uint64_t size_, at_ = 0;
  Digester digester_;
  std::string block_;
};

}  // namespace strata::detail
