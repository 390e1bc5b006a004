#include "store/io/ring_ops.h"

namespace strata::detail {

Result<std::unique_ptr<RingOps>> make_uring(std::span<const int>, std::uint32_t) {
  return Status::error(Code::unsupported, "this build has no io_uring");
}

}  // namespace strata::detail
