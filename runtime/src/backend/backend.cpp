#include <strata/runtime/backend/backend.h>

#include <utility>

#include <strata/runtime/assert.h>

namespace strata {

std::string_view to_string(DeviceKind kind) noexcept {
  switch (kind) {
    case DeviceKind::host:
      return "host";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::null:
      return "null";
  }
  return "unknown";
}

std::string_view to_string(StreamRole role) noexcept {
  switch (role) {
    case StreamRole::compute:
      return "compute";
    case StreamRole::h2d:
      return "h2d";
    case StreamRole::d2h:
      return "d2h";
    case StreamRole::cpu:
      return "cpu";
    case StreamRole::collective:
      return "collective";
  }
  return "unknown";
}

Buffer::~Buffer() {
  if (backend_ != nullptr) backend_->release(kind_, view_);
}

void Buffer::abandon() noexcept {
  if (backend_ != nullptr) std::exchange(backend_, nullptr)->abandon(view_);
}

Stream::~Stream() {
  if (backend_ != nullptr) backend_->destroy_stream(id_);
}

HostCall& HostCall::add(Access access) {
  STRATA_ASSERT(n_accesses_ < kMaxAccesses, label_, ": more than ", kMaxAccesses, " accesses declared");
  if (access.bytes > 0) accesses_[n_accesses_++] = access;
  return *this;
}

Status Backend::synchronize(Stream& stream) {
  STRATA_TRY_ASSIGN(const Event event, record(stream));
  return wait(event);
}

}  // namespace strata
