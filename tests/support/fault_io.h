#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <strata/runtime/io.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/thread_annotations.h>

namespace strata::test {

enum class IoCall : std::uint8_t { open, read, write, sync, allocate, rename, sync_dir };
inline constexpr std::size_t kIoCalls = 7;

enum class FaultKind : std::uint8_t {
  fail,       ///< the call returns `code` and does nothing; any call
  shorten,    ///< fewer bytes than asked: 1, an unaligned count or an aligned one; reads and writes
  flip,       ///< one random bit is changed: on the way to the file, or in what a read returns
  lose,       ///< a write succeeds and changes nothing
  misdirect,  ///< a write lands at another 4096-aligned place of the same file
  tear,       ///< a write changes a random subset of its 512-byte sectors
};

/// One fault: the `nth` call of that kind (from 1, counted since the FaultIo was made) and, if `sticky`, all
/// later ones.
struct Fault {
  IoCall call = IoCall::read;
  FaultKind kind = FaultKind::fail;
  std::uint64_t nth = 1;
  bool sticky = false;
  Code code = Code::io_error;
};

/// Wraps an Io and misbehaves on demand. What a fault does is a function of the seed and of the number of the
/// call, so the same calls in the same order meet the same faults; log() is the evidence. Its files have no
/// descriptor, so nothing can go around it. Thread-safe. Outlives its files; outlived by `base`.
class FaultIo final : public Io {
 public:
  FaultIo(Io& base, std::uint64_t seed);
  ~FaultIo() override;

  void add(const Fault& fault) STRATA_EXCLUDES(mutex_);
  void clear() STRATA_EXCLUDES(mutex_);  ///< no further faults
  /// Files opened with `direct` from now on refuse, as a strict device does, any request that is not aligned
  /// to this.
  void enforce_alignment(std::uint32_t bytes) noexcept { alignment_ = bytes; }
  /// From now on O_DIRECT is refused, and open() falls back to buffered.
  void refuse_direct() noexcept { refuse_direct_ = true; }

  std::uint64_t calls(IoCall call) const STRATA_EXCLUDES(mutex_);
  /// "write #3: lost 4096 bytes at 8192", in the order they happened.
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
  /// What one call meets: no fault, or one, with its private source of randomness.
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
