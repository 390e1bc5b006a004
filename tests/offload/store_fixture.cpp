#include "store_fixture.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include <strata/runtime/io/errno_status.h>
#include <strata/runtime/str.h>

namespace strata::test {
namespace {

// A File on a borrowed descriptor. DescriptorIo uses the descriptor numbers as paths, so that FaultIo can be
// put between a FakeRing and the descriptors.
class DescriptorFile final : public File {
 public:
  explicit DescriptorFile(int fd) : fd_(fd), path_(str(fd)) {}
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    const ssize_t n = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
    return done("reading", n);
  }
  Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) override {
    const ssize_t n = ::pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset));
    return done("writing", n);
  }
  Status sync() override { return Status::ok(); }
  Result<std::uint64_t> size() override {
    const off_t end = ::lseek(fd_, 0, SEEK_END);
    return static_cast<std::uint64_t>(end);
  }
  Status allocate(std::uint64_t) override { return Status::ok(); }
  const std::string& path() const noexcept override { return path_; }
  bool direct() const noexcept override { return (::fcntl(fd_, F_GETFL) & O_DIRECT) != 0; }
  DirectAlignment alignment() const noexcept override { return {4096, 4096}; }
  int descriptor() const noexcept override { return fd_; }

 private:
  Result<std::size_t> done(const char* doing, ssize_t n) const {
    if (n < 0) return detail::errno_status(doing, path_, errno);
    return static_cast<std::size_t>(n);
  }
  const int fd_;
  const std::string path_;
};

class DescriptorIo final : public Io {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode, bool) override {
    return std::unique_ptr<File>(std::make_unique<DescriptorFile>(std::stoi(path)));
  }
  Status make_dirs(const std::string&) override { return none(); }
  Status rename(const std::string&, const std::string&) override { return none(); }
  Status sync_dir(const std::string&) override { return none(); }
  Status remove_all(const std::string&) override { return none(); }
  Result<std::vector<std::string>> list(const std::string&) override { return none(); }
  bool exists(const std::string&) override { return false; }
  Result<std::uint64_t> free_bytes(const std::string&) override { return none(); }

 private:
  static Status none() { return Status::error(Code::unsupported, "descriptors only"); }
};

}  // namespace

std::string name_of(TestIoBackend engine) {
  switch (engine) {
    case TestIoBackend::uring:
      return "uring";
    case TestIoBackend::threads:
      return "threads";
    case TestIoBackend::fake_ring:
      return "fake_ring";
  }
  return "?";
}

StoreFixture::StoreFixture(TestIoBackend engine, std::uint64_t seed)
    : io_backend_(engine),
      descriptors_(std::make_unique<DescriptorIo>()),
      faults_(engine == TestIoBackend::fake_ring ? *descriptors_ : posix_io(), seed) {
  ring_.seed = seed;
}

Result<StorePtr<NvmeStore>> StoreFixture::try_make(NvmeOptions options) {
  if (options.dirs.empty()) options.dirs = {dir()};
  if (options.classes.empty()) options.classes = {{kSlotBytes, 8}};
  if (options.block_bytes == NvmeOptions{}.block_bytes) options.block_bytes = 32 * kKiB;
  options.engine = io_backend_ == TestIoBackend::threads ? IoEngine::threads : IoEngine::uring;
  if (io_backend_ == TestIoBackend::uring) return NvmeStore::create(posix_io(), std::move(options));
  if (io_backend_ == TestIoBackend::threads) return NvmeStore::create(faults_, std::move(options));
  const auto make_ring = [this](std::span<const int> descriptors,
                                std::uint32_t) -> Result<std::unique_ptr<detail::RingOps>> {
    std::vector<std::unique_ptr<File>> files;
    for (const int fd : descriptors) {
      STRATA_TRY_ASSIGN(auto file, faults_.open(str(fd), OpenMode::scratch));
      files.push_back(std::move(file));
    }
    return std::unique_ptr<detail::RingOps>(std::make_unique<FakeRing>(std::move(files), ring_, stats_));
  };
  return detail::FileStore::create(posix_io(), std::move(options), make_ring);
}

Status write_and_wait(NvmeStore& store, std::uint64_t id, const AlignedBuffer& from,
                      std::uint32_t slot_class) {
  STRATA_TRY_ASSIGN(const IoTicket ticket, store.write_async(id, slot_class, from.view()));
  return store.wait(ticket);
}

Status read_and_wait(NvmeStore& store, std::uint64_t id, const AlignedBuffer& into) {
  STRATA_TRY_ASSIGN(const IoTicket ticket, store.read_async(id, into.view()));
  return store.wait(ticket);
}

bool uring_works(std::string* why) {
  const TempDir dir;
  const auto store = NvmeStore::create(
      posix_io(), {.dirs = {dir.path()}, .classes = {{kSlotBytes, 1}}, .engine = IoEngine::uring});
  *why = store.status().to_string();
  return store.has_value();
}

}  // namespace strata::test
