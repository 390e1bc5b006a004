#include "support/fault_io.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata::test {
namespace {

constexpr std::array<const char*, kIoCalls> kNames{"open",     "read",   "write",   "sync",
                                                   "allocate", "rename", "sync_dir"};
constexpr std::size_t kAlign = 4096;
constexpr std::size_t kSector = 512;

// Memory aligned as direct files require.
class AlignedCopy {
 public:
  explicit AlignedCopy(std::size_t n)
      : bytes_(n), data_(static_cast<std::byte*>(::operator new[](n, std::align_val_t(kAlign)))) {}
  explicit AlignedCopy(std::span<const std::byte> from) : AlignedCopy(from.size()) {
    std::memcpy(data_, from.data(), from.size());
  }
  ~AlignedCopy() { ::operator delete[](data_, std::align_val_t(kAlign)); }
  AlignedCopy(const AlignedCopy&) = delete;
  AlignedCopy& operator=(const AlignedCopy&) = delete;
  std::span<std::byte> span() noexcept { return {data_, bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

std::size_t shortened(std::size_t n, const Rng& rng) {
  if (n < 2) return n;
  switch (rng.below(0, 4)) {
    case 0:
      return 1;
    case 1:
      return 1 + rng.below(1, n - 1);  // mostly unaligned
    case 2:
      return std::min(n, (1 + rng.below(1, (n + kSector - 1) / kSector)) * kSector);
    default:
      return std::min(n, (1 + rng.below(1, (n + kAlign - 1) / kAlign)) * kAlign);
  }
}

void flip_a_bit(std::span<std::byte> bytes, const Rng& rng) {
  if (bytes.empty()) return;
  bytes[rng.below(0, bytes.size())] ^= std::byte{1} << rng.below(1, 8);
}

}  // namespace

class FaultFile final : public File {
 public:
  FaultFile(FaultIo& io, std::unique_ptr<File> base, bool direct, std::uint32_t alignment)
      : io_(io), base_(std::move(base)), direct_(direct), alignment_(alignment) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) override {
    const auto injection = io_.next(IoCall::read);
    STRATA_TRY(check_alignment("reading", offset, into));
    if (!injection.faulty) return base_->read_at(offset, into);
    switch (injection.fault.kind) {
      case FaultKind::fail:
        return io_.failure(injection, path());
      case FaultKind::shorten:
        return short_read(injection, offset, into);
      case FaultKind::flip: {
        auto done = base_->read_at(offset, into);
        if (done.has_value()) flip_a_bit(into.first(*done), injection.rng);
        io_.note(injection, str("flipped a bit of ", into.size(), " bytes requested at ", offset));
        return done;
      }
      default:
        return base_->read_at(offset, into);
    }
  }

  Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) override {
    const auto injection = io_.next(IoCall::write);
    STRATA_TRY(check_alignment("writing", offset, from));
    if (!injection.faulty) return base_->write_at(offset, from);
    if (injection.fault.kind == FaultKind::fail) return io_.failure(injection, path());
    if (injection.fault.kind == FaultKind::shorten) return short_write(injection, offset, from);
    STRATA_TRY(damage(injection, offset, from));
    return from.size();
  }

  Status sync() override {
    return guarded(IoCall::sync, [&] { return base_->sync(); });
  }
  Status allocate(std::uint64_t bytes) override {
    return guarded(IoCall::allocate, [&] { return base_->allocate(bytes); });
  }
  Result<std::uint64_t> size() override { return base_->size(); }
  Status lock() override { return base_->lock(); }
  const std::string& path() const noexcept override { return base_->path(); }
  bool direct() const noexcept override { return direct_; }
  DirectAlignment alignment() const noexcept override {
    return alignment_ != 0 ? DirectAlignment{alignment_, alignment_} : base_->alignment();
  }
  int descriptor() const noexcept override { return -1; }

 private:
  template <class Call>
  Status guarded(IoCall kind, Call call) {
    const auto injection = io_.next(kind);
    return injection.faulty && injection.fault.kind == FaultKind::fail ? io_.failure(injection, path())
                                                                       : call();
  }

  Status check_alignment(const char* doing, std::uint64_t offset, std::span<const std::byte> memory) const {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    if (alignment_ == 0 ||
        (offset % alignment_ == 0 && memory.size() % alignment_ == 0 && address % alignment_ == 0))
      return Status::ok();
    return Status::error(Code::io_error, str(doing, " ", path(), ": Invalid argument (EINVAL): ",
                                             memory.size(), " bytes requested at ", offset, " from address ",
                                             address, ", alignment ", alignment_));
  }

  // The base may be a direct file, which accepts only whole aligned blocks. The whole request is therefore
  // transferred by way of a copy, of which only the prefix is passed on.
  Result<std::size_t> short_read(const FaultIo::Injection& injection, std::uint64_t offset,
                                 std::span<std::byte> into) {
    AlignedCopy whole(into.size());
    STRATA_TRY_ASSIGN(const std::size_t done, base_->read_at(offset, whole.span()));
    const std::size_t kept = std::min(done, shortened(into.size(), injection.rng));
    std::memcpy(into.data(), whole.span().data(), kept);
    io_.note(injection, str("short, ", kept, " of ", into.size(), " bytes requested at ", offset));
    return kept;
  }

  Result<std::size_t> short_write(const FaultIo::Injection& injection, std::uint64_t offset,
                                  std::span<const std::byte> from) {
    const std::size_t kept = shortened(from.size(), injection.rng);
    STRATA_TRY(write_some(offset, from, [kept](std::size_t at) { return at < kept; }));
    io_.note(injection, str("short, ", kept, " of ", from.size(), " bytes requested at ", offset));
    return kept;
  }

  Status damage(const FaultIo::Injection& injection, std::uint64_t offset, std::span<const std::byte> from) {
    const std::string what = str(from.size(), " bytes requested at ", offset);
    switch (injection.fault.kind) {
      case FaultKind::flip: {
        AlignedCopy copy(from);
        flip_a_bit(copy.span(), injection.rng);
        io_.note(injection, str("flipped a bit of ", what));
        return write_all(*base_, offset, copy.span());
      }
      case FaultKind::lose:
        io_.note(injection, str("lost ", what));
        return Status::ok();
      case FaultKind::misdirect: {
        STRATA_TRY_ASSIGN(const std::uint64_t bytes, base_->size());
        const std::uint64_t places = bytes < from.size() ? 0 : (bytes - from.size()) / kAlign + 1;
        std::uint64_t to = places == 0 ? offset : injection.rng.below(0, places) * kAlign;
        if (to == offset) to = (offset / kAlign + 1) % std::max<std::uint64_t>(places, 1) * kAlign;
        io_.note(injection, str("misdirected ", what, " to ", to));
        return to == offset ? Status::ok() : write_all(*base_, to, from);
      }
      case FaultKind::tear: {
        // One for each sector: drawing for each byte would dominate the run time of many tears.
        std::vector<bool> kept;
        for (std::size_t at = 0; at < from.size(); at += kSector)
          kept.push_back(injection.rng.below(at / kSector, 2) == 0);
        io_.note(injection, str("torn, ", what));
        return write_some(offset, from, [&](std::size_t at) { return kept[at / kSector]; });
      }
      default:
        return Status::ok();
    }
  }

  // Writes the bytes for which `keep` returns true and leaves the others as they were in the file.
  template <class Keep>
  Status write_some(std::uint64_t offset, std::span<const std::byte> from, Keep keep) {
    AlignedCopy merged(from.size());
    std::fill(merged.span().begin(), merged.span().end(), std::byte{0});
    static_cast<void>(base_->read_at(offset, merged.span()));  // past the end there is nothing to preserve
    for (std::size_t at = 0; at < from.size(); ++at)
      if (keep(at)) merged.span()[at] = from[at];
    return write_all(*base_, offset, merged.span());
  }

  FaultIo& io_;
  std::unique_ptr<File> base_;
  const bool direct_;
  const std::uint32_t alignment_;  // 0: as the base requires
};

FaultIo::FaultIo(Io& base, std::uint64_t seed) : base_(base), seed_(seed) {}
FaultIo::~FaultIo() = default;

void FaultIo::add(const Fault& fault) {
  const MutexLock lock(mutex_);
  faults_.push_back(fault);
}

void FaultIo::clear() {
  const MutexLock lock(mutex_);
  faults_.clear();
}

std::uint64_t FaultIo::calls(IoCall call) const {
  const MutexLock lock(mutex_);
  return calls_[static_cast<std::size_t>(call)];
}

std::vector<std::string> FaultIo::log() const {
  const MutexLock lock(mutex_);
  return log_;
}

FaultIo::Injection FaultIo::next(IoCall call) {
  const MutexLock lock(mutex_);
  Injection injection;
  injection.number = ++calls_[static_cast<std::size_t>(call)];
  injection.rng = Rng(seed_ + injection.number, static_cast<std::uint64_t>(call));
  for (const Fault& fault : faults_)
    if (fault.call == call &&
        (injection.number == fault.nth || (fault.sticky && injection.number > fault.nth))) {
      injection.faulty = true;
      injection.fault = fault;
      break;
    }
  return injection;
}

void FaultIo::note(const Injection& injection, const std::string& what) {
  const MutexLock lock(mutex_);
  log_.push_back(
      str(kNames[static_cast<std::size_t>(injection.fault.call)], " #", injection.number, ": ", what));
}

Status FaultIo::failure(const Injection& injection, const std::string& object) {
  note(injection, str("failed with ", to_string(injection.fault.code)));
  return Status::error(injection.fault.code, str(kNames[static_cast<std::size_t>(injection.fault.call)], " ",
                                                 object, ": injected failure of call ", injection.number));
}

Result<std::unique_ptr<File>> FaultIo::open(const std::string& path, OpenMode mode, bool direct) {
  const Injection injection = next(IoCall::open);
  if (injection.faulty && injection.fault.kind == FaultKind::fail) return failure(injection, path);
  STRATA_TRY_ASSIGN(std::unique_ptr<File> base, base_.open(path, mode, direct && !refuse_direct_));
  const bool enforced = direct && !refuse_direct_ && alignment_ != 0;
  const bool is_direct = enforced || base->direct();
  return std::unique_ptr<File>(
      std::make_unique<FaultFile>(*this, std::move(base), is_direct, enforced ? alignment_ : 0));
}

Status FaultIo::rename(const std::string& from, const std::string& to) {
  const Injection injection = next(IoCall::rename);
  return injection.faulty ? failure(injection, to) : base_.rename(from, to);
}

Status FaultIo::sync_dir(const std::string& path) {
  const Injection injection = next(IoCall::sync_dir);
  return injection.faulty ? failure(injection, path) : base_.sync_dir(path);
}

}  // namespace strata::test
