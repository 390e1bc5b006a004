#include "ring_ops.h"

namespace strata::detail {

Result<std::unique_ptr<RingOps>> make_uring(std::span<const int>, std::uint32_t) {
  return Status::error(Code::unsupported, "io_uring is not in this build");
}

}  // namespace strata::detail
