#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/thread_annotations.h>

namespace strata::test {

enum class IoCall : std::uint8_t { open, read, write, sync, allocate, rename, sync_dir };
inline constexpr std::size_t kIoCalls = 7;

enum class FaultKind : std::uint8_t {
  fail,       ///< the call returns `code` and does nothing; any call
  shorten,    ///< fewer bytes are transferred than asked: 1, an unaligned or an aligned count; reads and
              ///< writes
  flip,       ///< one random bit is changed, in what is written or in what a read returns
  lose,       ///< a write succeeds and changes nothing
  misdirect,  ///< a write goes to another 4096-aligned offset of the same file
  tear,       ///< a write changes a random subset of its 512-byte sectors
};

/// One fault: it affects the `nth` call of that kind (counted from 1 since the FaultIo was created) and, if
/// `sticky`, all later ones.
struct Fault {
  IoCall call = IoCall::read;
  FaultKind kind = FaultKind::fail;
  std::uint64_t nth = 1;
  bool sticky = false;
  Code code = Code::io_error;
};

/// Wraps an Io and injects faults on demand. What a fault does depends only on the seed and the number of the
/// call, so the same calls in the same order get the same faults; log() lists them. Its files have no
/// descriptor, so no I/O can bypass it. Thread-safe. Must outlive its files and be outlived by `base`.
class FaultIo final : public Io {
 public:
  FaultIo(Io& base, std::uint64_t seed);
  ~FaultIo() override;

  void add(const Fault& fault) STRATA_EXCLUDES(mutex_);
  void clear() STRATA_EXCLUDES(mutex_);  ///< no further faults
  /// Files opened with `direct` from now on refuse requests that are not aligned to `bytes`, as a strict
  /// device does.
  void enforce_alignment(std::uint32_t bytes) noexcept { alignment_ = bytes; }
  /// From now on O_DIRECT is refused, so open() falls back to buffered I/O.
  void refuse_direct() noexcept { refuse_direct_ = true; }

  std::uint64_t calls(IoCall call) const STRATA_EXCLUDES(mutex_);
  /// For example "write #3: lost 4096 bytes requested at 8192", in chronological order.
  std::vector<std::string> log() const STRATA_EXCLUDES(mutex_);

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, bool direct = false) override;
  Status make_dirs(const std::string& path) override { return base_.make_dirs(path); }
  Status rename(const std::string& from, const std::string& to) override;
  Status sync_dir(const std::string& path) override;
  Status remove_all(const std::string& path) override { return base_.remove_all(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return base_.list(path); }
  bool exists(const std::string& path) override { return base_.exists(path); }
  Result<std::uint64_t> free_bytes(const std::string& path) override { return base_.free_bytes(path); }

 private:
  friend class FaultFile;
  /// The fault that one call gets, if any, with its own source of randomness.
  struct Injection {
    bool faulty = false;
    Fault fault;
    std::uint64_t number = 0;
    Rng rng{0, 0};
  };
  Injection next(IoCall call) STRATA_EXCLUDES(mutex_);
  void note(const Injection& injection, const std::string& what) STRATA_EXCLUDES(mutex_);
  Status failure(const Injection& injection, const std::string& object) STRATA_EXCLUDES(mutex_);

  Io& base_;
  const std::uint64_t seed_;
  std::uint32_t alignment_ = 0;
  bool refuse_direct_ = false;
  mutable Mutex mutex_;
  std::array<std::uint64_t, kIoCalls> calls_ STRATA_GUARDED_BY(mutex_){};
  std::vector<Fault> faults_ STRATA_GUARDED_BY(mutex_);
  std::vector<std::string> log_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::test
