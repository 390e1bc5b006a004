#include <strata/runtime/memory/budget.h>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include <algorithm>

namespace strata {

void Reservation::commit() noexcept {
  if (budget_ == nullptr || committed_) return;
  budget_->commit(bytes_);
  committed_ = true;
}

void Reservation::merge(Reservation&& other) noexcept {
  if (other.budget_ == nullptr) return;
  if (budget_ == nullptr) {
    *this = std::move(other);
    return;
  }
  STRATA_ASSERT(budget_ == other.budget_ && committed_ == other.committed_, "reservations of ",
                budget_->name(), " and ", other.budget_->name(), " cannot be merged");
  bytes_ += std::exchange(other.bytes_, 0);
  other.budget_ = nullptr;
  other.committed_ = false;
}

void Reservation::release() noexcept {
  if (budget_ != nullptr) budget_->release(bytes_, committed_);
  budget_ = nullptr;
  bytes_ = 0;
  committed_ = false;
}

Budget::~Budget() {
  STRATA_ASSERT(used_bytes_ + reserved_bytes_ == 0, "budget ", name_, " is destroyed with ", used_bytes_,
                " bytes used and ", reserved_bytes_, " reserved");
}

Result<Reservation> Budget::reserve(std::size_t bytes, std::string_view what) {
  std::size_t used = 0, reserved = 0;
  {
    const MutexLock lock(mutex_);
    used = used_bytes_;
    reserved = reserved_bytes_;
    if (bytes <= limit_bytes_ - used - reserved) {
      reserved_bytes_ += bytes;
      peak_bytes_ = std::max(peak_bytes_, used + reserved_bytes_);
      return Reservation(this, bytes);
    }
  }
  return Status::error(Code::does_not_fit, str(what, " needs ", bytes, " bytes of ", name_, ", which has ",
                                               used, " used and ", reserved, " reserved of ", limit_bytes_));
}

void Budget::commit(std::size_t bytes) noexcept {
  const MutexLock lock(mutex_);
  STRATA_ASSERT(bytes <= reserved_bytes_, name_, ": ", bytes, " bytes committed, ", reserved_bytes_,
                " reserved");
  reserved_bytes_ -= bytes;
  used_bytes_ += bytes;
}

void Budget::release(std::size_t bytes, bool committed) noexcept {
  const MutexLock lock(mutex_);
  std::size_t& from = committed ? used_bytes_ : reserved_bytes_;
  STRATA_ASSERT(bytes <= from, name_, ": ", bytes, " bytes released, ", from, " held");
  from -= bytes;
}

std::size_t Budget::used_bytes() const {
  const MutexLock lock(mutex_);
  return used_bytes_;
}
std::size_t Budget::reserved_bytes() const {
  const MutexLock lock(mutex_);
  return reserved_bytes_;
}
std::size_t Budget::free_bytes() const {
  const MutexLock lock(mutex_);
  return limit_bytes_ - used_bytes_ - reserved_bytes_;
}
std::size_t Budget::peak_bytes() const {
  const MutexLock lock(mutex_);
  return peak_bytes_;
}

}  // namespace strata
