#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace strata::test {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace strata::test

namespace strata {

/// A small file system in memory: a map from paths to bytes; directories are implied by their files.
/// Thread-safe. Options limit its capacity, make reads and writes short, or give files real descriptors
/// (memfd) that can be mapped.
class MemoryIo final : public Io {
 public:
  struct Options {
    std::uint64_t capacity_bytes = std::numeric_limits<std::uint64_t>::max();
    std::size_t max_transfer_bytes = std::numeric_limits<std::size_t>::max();  ///< per read_at or write_at
    bool descriptors = false;  ///< files opened for reading have a descriptor of a copy of their bytes
  };
  MemoryIo() = default;
  explicit MemoryIo(Options options) : options_(options) {}

  // For tests to create, inspect and damage files.
  void put(const std::string& path, std::string_view text) {
    const std::lock_guard lock(mutex_);
    files_[path] = std::make_shared<Bytes>(text.begin(), text.end());
  }
  std::string get(const std::string& path) {
    const std::lock_guard lock(mutex_);
    const auto it = files_.find(path);
    return it == files_.end() ? std::string() : std::string(it->second->begin(), it->second->end());
  }
  void flip(const std::string& path, std::size_t offset) {
    const std::lock_guard lock(mutex_);
    files_.at(path)->at(offset) ^= 1;
  }
  std::uint64_t syncs() {
    const std::lock_guard lock(mutex_);
    return syncs_;
  }

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode,
                                     bool /*direct*/ = false) override {
    const std::lock_guard lock(mutex_);
    const auto it = files_.find(path);
    const bool found = it != files_.end();
    if (mode == OpenMode::scratch) return make_file(path, std::make_shared<Bytes>(), mode);
    if ((mode == OpenMode::read || mode == OpenMode::read_no_follow || mode == OpenMode::update) && !found)
      return Status::error(Code::not_found, str(path, ": no such file"));
    if (mode == OpenMode::create && found) return Status::error(Code::invalid, str(path, ": exists already"));
    if (mode == OpenMode::create || mode == OpenMode::truncate || !found)
      files_[path] = std::make_shared<Bytes>();
    return make_file(path, files_[path], mode);
  }
  Status make_dirs(const std::string& /*path*/) override { return {}; }
  Status rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(mutex_);
    auto node = files_.extract(from);
    if (node.empty()) return Status::error(Code::not_found, str(from, ": no such file"));
    files_[to] = std::move(node.mapped());
    return {};
  }
  Status sync_dir(const std::string& /*path*/) override { return {}; }
  Status remove_all(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(files_, [&](const auto& f) { return f.first == path || f.first.starts_with(path + "/"); });
    return {};
  }
  Result<std::vector<std::string>> list(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files_)
      if (name.starts_with(path + "/"))
        names.push_back(name.substr(path.size() + 1, name.find('/', path.size() + 1) - path.size() - 1));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }
  bool exists(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    return files_.count(path) != 0;
  }
  Result<std::uint64_t> free_bytes(const std::string& /*path*/) override {
    const std::lock_guard lock(mutex_);
    return options_.capacity_bytes - used_bytes();
  }

 private:
  using Bytes = std::vector<unsigned char>;

  class MemoryFile final : public File {
   public:
    MemoryFile(MemoryIo& io, std::string path, std::shared_ptr<Bytes> bytes, OpenMode mode, int descriptor)
        : io_(io), path_(std::move(path)), bytes_(std::move(bytes)), mode_(mode), descriptor_(descriptor) {}
    ~MemoryFile() override {
      if (descriptor_ >= 0) ::close(descriptor_);
    }
    Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
      const std::lock_guard lock(io_.mutex_);
      if (offset >= bytes_->size()) return std::size_t{0};
      const std::size_t n = std::min(
          {into.size(), bytes_->size() - static_cast<std::size_t>(offset), io_.options_.max_transfer_bytes});
      if (n != 0) std::memcpy(into.data(), bytes_->data() + offset, n);
      return n;
    }
    Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) override {
      const std::lock_guard lock(io_.mutex_);
      if (mode_ == OpenMode::read) return Status::error(Code::io_error, str(path_, ": opened for reading"));
      const std::size_t at = mode_ == OpenMode::append ? bytes_->size() : static_cast<std::size_t>(offset);
      const std::size_t n = std::min(from.size(), io_.options_.max_transfer_bytes);
      STRATA_TRY(grow(at + n));
      if (n != 0) std::memcpy(bytes_->data() + at, from.data(), n);
      return n;
    }
    Status sync() override {
      const std::lock_guard lock(io_.mutex_);
      ++io_.syncs_;
      return {};
    }
    Result<std::uint64_t> size() override {
      const std::lock_guard lock(io_.mutex_);
      return std::uint64_t{bytes_->size()};
    }
    Status allocate(std::uint64_t bytes) override {
      const std::lock_guard lock(io_.mutex_);
      return grow(static_cast<std::size_t>(bytes));
    }
    const std::string& path() const noexcept override { return path_; }
    bool direct() const noexcept override { return false; }
    int descriptor() const noexcept override { return descriptor_; }
    DirectAlignment alignment() const noexcept override { return {}; }

   private:
    Status grow(std::size_t size) {  // call with the lock held
      if (size <= bytes_->size()) return {};
      const std::uint64_t free =
          io_.options_.capacity_bytes - std::min(io_.options_.capacity_bytes, io_.used_bytes());
      if (size - bytes_->size() > free)
        return Status::error(Code::no_space,
                             str(path_, ": ", size - bytes_->size(), " bytes wanted, ", free, " free"));
      bytes_->resize(size);
      return {};
    }
    MemoryIo& io_;
    std::string path_;
    std::shared_ptr<Bytes> bytes_;
    OpenMode mode_;
    int descriptor_;
  };

  std::unique_ptr<File> make_file(const std::string& path, std::shared_ptr<Bytes> bytes, OpenMode mode) {
    int descriptor = -1;
    if (options_.descriptors && mode == OpenMode::read) {
      descriptor = ::memfd_create("memory_io", MFD_CLOEXEC);
      if (::write(descriptor, bytes->data(), bytes->size()) != static_cast<ssize_t>(bytes->size()))
        std::abort();
    }
    return std::make_unique<MemoryFile>(*this, path, std::move(bytes), mode, descriptor);
  }
  std::uint64_t used_bytes() const {
    std::uint64_t used = 0;
    for (const auto& [path, bytes] : files_) used += bytes->size();
    return used;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Bytes>> files_;
  std::uint64_t syncs_ = 0;
  Options options_;
};

}  // namespace strata
