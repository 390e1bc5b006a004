#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <strata/runtime/clock.h>
#include <strata/runtime/io/io.h>

namespace strata::bench {

/// A file system on a simulated device with a given rate: the device serves one request after the other, and
/// a call returns when its request would be complete. On a tmpfs this is a device without the noise of a real
/// one.
class PacedIo final : public Io {
 public:
  PacedIo(Io& io, double bytes_per_s) : io_(io), device_{1e9 / bytes_per_s} {}

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, bool direct) override {
    STRATA_TRY_ASSIGN(std::unique_ptr<File> file, io_.open(path, mode, direct));
    return std::unique_ptr<File>(std::make_unique<PacedFile>(std::move(file), device_));
  }
  Status make_dirs(const std::string& path) override { return io_.make_dirs(path); }
  Status rename(const std::string& from, const std::string& to) override { return io_.rename(from, to); }
  Status sync_dir(const std::string& path) override { return io_.sync_dir(path); }
  Status remove_all(const std::string& path) override { return io_.remove_all(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return io_.list(path); }
  bool exists(const std::string& path) override { return io_.exists(path); }
  Result<std::uint64_t> free_bytes(const std::string& path) override { return io_.free_bytes(path); }

 private:
  struct Device {
    double ns_per_byte;
    SteadyClock clock{};
    std::atomic<std::int64_t> free_at_ns{0};

    /// Later requests wait for this one too.
    std::int64_t serve(std::size_t bytes) {
      const auto takes = static_cast<std::int64_t>(static_cast<double>(bytes) * ns_per_byte);
      std::int64_t free_at = free_at_ns.load(), done = 0;
      do done = std::max(free_at, clock.now_ns()) + takes;
      while (!free_at_ns.compare_exchange_weak(free_at, done));
      return done;
    }
  };

  class PacedFile final : public File {
   public:
    PacedFile(std::unique_ptr<File> file, Device& device) : file_(std::move(file)), device_(device) {}
    Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
      const std::int64_t done = device_.serve(into.size());
      auto n = file_->read_at(offset, into);
      device_.clock.wait_until(done);
      return n;
    }
    Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) override {
      const std::int64_t done = device_.serve(from.size());
      auto n = file_->write_at(offset, from);
      device_.clock.wait_until(done);
      return n;
    }
    Status sync() override { return file_->sync(); }
    Result<std::uint64_t> size() override { return file_->size(); }
    Status allocate(std::uint64_t bytes) override { return file_->allocate(bytes); }
    Status lock() override { return file_->lock(); }
    const std::string& path() const noexcept override { return file_->path(); }
    bool direct() const noexcept override { return file_->direct(); }
    DirectAlignment alignment() const noexcept override { return file_->alignment(); }
    int descriptor() const noexcept override { return -1; }

   private:
    std::unique_ptr<File> file_;
    Device& device_;
  };

  Io& io_;
  Device device_;
};

}  // namespace strata::bench
