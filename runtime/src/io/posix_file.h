#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <strata/runtime/io/io.h>

namespace strata::detail {

/// The File interface on a file descriptor.
class PosixFile final : public File {
 public:
  /// Takes ownership of `fd`.
  PosixFile(int fd, std::string path, bool direct);
  ~PosixFile() override;
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override;
  Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) override;
  Status sync() override;
  Result<std::uint64_t> size() override;
  Status allocate(std::uint64_t bytes) override;
  Status lock() override;
  const std::string& path() const noexcept override { return path_; }
  Result<std::string> current_path() const override;
  bool direct() const noexcept override { return direct_; }
  DirectAlignment alignment() const noexcept override { return alignment_; }
  int descriptor() const noexcept override { return fd_; }

 private:
  Status write_zeros(std::uint64_t from, std::uint64_t to);
  const int fd_;
  const std::string path_;
  const bool direct_;
  DirectAlignment alignment_;
  std::atomic<int> sync_error_{0};  // errno of the first failed sync; only a flag, so it needs no ordering
};

}  // namespace strata::detail
