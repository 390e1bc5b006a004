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

/// Bytes taken from a Budget before they exist, given back on destruction; move-only. It starts as reserved
/// and becomes used by commit(). The Budget must outlive it. Not thread-safe itself; its Budget is.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { swap(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    Reservation taken(std::move(other));  // what this held goes back now, not when `other` dies
    swap(taken);
    return *this;
  }
  ~Reservation() { release(); }

  std::size_t bytes() const noexcept { return bytes_; }
  bool committed() const noexcept { return committed_; }
  /// The bytes exist now: reserved becomes used. Again: nothing.
  void commit() noexcept;
  /// Takes over the bytes of `other`, which is of the same Budget and as committed as this one (or this is
  /// empty).
  void merge(Reservation&& other) noexcept;
  /// Gives everything back now.
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

/// The byte limit of one tier: used + reserved <= limit at every instant. Thread-safe (one leaf lock);
/// allocates only for the message of a refusal. Destroying it under a live Reservation asserts.
class Budget {
 public:
  static constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

  explicit Budget(std::string name, std::size_t limit_bytes = kUnlimited)
      : name_(std::move(name)), limit_bytes_(limit_bytes) {}
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// Zero bytes always fit. Errors: `does_not_fit`, naming the tier, `what` and all the numbers; nothing
  /// changed.
  Result<Reservation> reserve(std::size_t bytes, std::string_view what) STRATA_EXCLUDES(mutex_);

  const std::string& name() const noexcept { return name_; }
  std::size_t limit_bytes() const noexcept { return limit_bytes_; }
  std::size_t used_bytes() const STRATA_EXCLUDES(mutex_);
  std::size_t reserved_bytes() const STRATA_EXCLUDES(mutex_);
  std::size_t free_bytes() const STRATA_EXCLUDES(mutex_);
  /// The most that used + reserved ever was.
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
