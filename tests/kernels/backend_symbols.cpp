#include <strata/runtime/assert.h>
#include <strata/runtime/backend.h>

// The parts of the Backend interface that its header leaves to a source file, for a tree without that file.
namespace strata {

HostCall& HostCall::add(Access access) {
  STRATA_ASSERT(n_accesses_ < kMaxAccesses, label_, " has more than ", kMaxAccesses, " accesses");
  accesses_[n_accesses_++] = access;
  return *this;
}
Buffer::~Buffer() = default;
Stream::~Stream() = default;

}  // namespace strata
