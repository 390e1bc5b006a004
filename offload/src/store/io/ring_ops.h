#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>

namespace strata::detail {

struct RingOp {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  int buffer = -1;  ///< the registered buffer that holds `data`; -1: none
  std::uint64_t tag = 0;
};

struct RingCompletion {
  std::uint64_t tag = 0;
  std::int32_t result = 0;  ///< bytes moved, or -errno
};

/// The operations of a ring, an interface with which tests replace the kernel. One thread owns it; only
/// wake() and register_buffer() may be called from others.
class RingOps {
 public:
  virtual ~RingOps() = default;
  virtual std::uint32_t capacity() const noexcept = 0;  ///< operations that may be in flight without overflow
  virtual void push(const RingOp& op) = 0;              ///< at most capacity() in flight
  /// Submits the pushed operations to the kernel and, if `block`, waits for a completion or wake(). Returns
  /// 0, or -errno if not all were submitted; after -EAGAIN, -EBUSY and -EINTR the caller tries again.
  virtual int enter(bool block) = 0;
  virtual bool pop(RingCompletion& completion) = 0;  ///< false: none is ready
  virtual void wake() noexcept = 0;
  virtual int register_buffer(std::uint32_t index, BufferView buffer) = 0;  ///< 0 or -errno
  static constexpr std::uint32_t kMaxBuffers = 256;
};

/// Creates an io_uring for the descriptors, which outlive it. Errors: `unsupported` with the reason, also if
/// the build has no io_uring.
Result<std::unique_ptr<RingOps>> make_uring(std::span<const int> descriptors, std::uint32_t queue_depth);

}  // namespace strata::detail
