#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

namespace strata {

class Budget;

/// Bytes charged to a Budget before they are allocated, and released on destruction; move-only. They start
/// out reserved and become used by commit(). The Budget must outlive the Reservation. Not thread-safe itself;
/// the Budget is.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { swap(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    Reservation taken(std::move(other));  // releases this object's bytes now, not when `other` is destroyed
    swap(taken);
    return *this;
  }
  ~Reservation() { release(); }

  std::size_t bytes() const noexcept { return bytes_; }
  bool committed() const noexcept { return committed_; }
  /// Turns the bytes from reserved into used, once they have been allocated. A second call does nothing.
  void commit() noexcept;
  /// Takes over the bytes of `other`, which must belong to the same Budget and be committed if and only if
  /// this one is. This one may also be empty.
  void merge(Reservation&& other) noexcept;
  /// Releases all bytes now.
  void release() noexcept;

 private:
  friend class Budget;
  Reservation(Budget* budget, std::size_t bytes) noexcept : budget_(budget), bytes_(bytes) {}
  void swap(Reservation& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    std::swap(committed_, other.committed_);
  }
  Budget* budget_ = nullptr;
  std::size_t bytes_ = 0;
  bool committed_ = false;
};

/// The byte limit of one tier: used + reserved <= limit at all times. Thread-safe (one leaf lock); allocates
/// only for the message of a refusal. Destroying it while a Reservation is alive asserts.
class Budget {
 public:
  static constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

  explicit Budget(std::string name, std::size_t limit_bytes = kUnlimited)
      : name_(std::move(name)), limit_bytes_(limit_bytes) {}
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// Reserves `bytes`; zero bytes always fit. Errors: `does_not_fit`, naming the tier, `what` and all the
  /// numbers; then nothing has changed.
  Result<Reservation> reserve(std::size_t bytes, std::string_view what) STRATA_EXCLUDES(mutex_);

  const std::string& name() const noexcept { return name_; }
  std::size_t limit_bytes() const noexcept { return limit_bytes_; }
  std::size_t used_bytes() const STRATA_EXCLUDES(mutex_);
  std::size_t reserved_bytes() const STRATA_EXCLUDES(mutex_);
  std::size_t free_bytes() const STRATA_EXCLUDES(mutex_);
  /// The maximum of used + reserved so far.
  std::size_t peak_bytes() const STRATA_EXCLUDES(mutex_);

 private:
  friend class Reservation;
  void commit(std::size_t bytes) noexcept STRATA_EXCLUDES(mutex_);
  void release(std::size_t bytes, bool committed) noexcept STRATA_EXCLUDES(mutex_);

  const std::string name_;
  const std::size_t limit_bytes_;
  mutable Mutex mutex_;
  std::size_t used_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  std::size_t reserved_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  std::size_t peak_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
};

}  // namespace strata
