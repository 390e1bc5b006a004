#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include <strata/runtime/assert.h>
#include <strata/runtime/io/errno_status.h>

#include "store/io/ring_ops.h"

namespace strata::detail {
namespace {

constexpr std::uint64_t kWakeTag = ~std::uint64_t{0};

// liburing maps and unmaps rings by system calls that TSan does not see: it would take a ring for an earlier
// one that had the same addresses, and report the threads of both.
#ifdef __SANITIZE_THREAD__
int all_rings = 0;
void note_mapped() { __tsan_acquire(&all_rings); }
void note_unmapped() { __tsan_release(&all_rings); }
#else
void note_mapped() {}
void note_unmapped() {}
#endif

class UringRing final : public RingOps {
 public:
  static Result<std::unique_ptr<RingOps>> create(std::span<const int> descriptors,
                                                 std::uint32_t queue_depth) {
    std::unique_ptr<UringRing> made(new UringRing(descriptors));
    STRATA_TRY(made->open(queue_depth));
    return std::unique_ptr<RingOps>(std::move(made));
  }

  ~UringRing() override {
    note_unmapped();
    if (open_) io_uring_queue_exit(&ring_);
    if (event_ >= 0) ::close(event_);
  }

  std::uint32_t capacity() const noexcept override { return capacity_; }

  void push(const RingOp& op) override {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    STRATA_ASSERT(sqe != nullptr, "submission queue of ", ring_.sq.ring_entries,
                  " entries is full, capacity ", capacity_);
    const int fd = fixed_files_ ? static_cast<int>(op.file) : descriptors_[op.file];
    if (op.write && op.buffer >= 0)
      io_uring_prep_write_fixed(sqe, fd, op.data, op.bytes, op.offset, op.buffer);
    else if (op.write)
      io_uring_prep_write(sqe, fd, op.data, op.bytes, op.offset);
    else if (op.buffer >= 0)
      io_uring_prep_read_fixed(sqe, fd, op.data, op.bytes, op.offset, op.buffer);
    else
      io_uring_prep_read(sqe, fd, op.data, op.bytes, op.offset);
    if (fixed_files_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, op.tag);
  }

  int enter(bool block) override {
    if (block && !wake_armed_) arm_wake();
    const int n = io_uring_submit_and_wait(&ring_, block ? 1 : 0);
    if (n < 0) return n;
    return io_uring_sq_ready(&ring_) == 0 ? 0 : -EAGAIN;
  }

  bool pop(RingCompletion& completion) override {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      completion = {io_uring_cqe_get_data64(cqe), cqe->res};
      io_uring_cqe_seen(&ring_, cqe);
      if (completion.tag != kWakeTag) return true;
      wake_armed_ = false;
      eventfd_t drained = 0;
      static_cast<void>(eventfd_read(event_, &drained));  // nonblocking; nothing to drain is fine
    }
    return false;
  }

  void wake() noexcept override {
    if (eventfd_write(event_, 1) != 0 &&
        errno != EAGAIN)  // EAGAIN: the counter is full, so a wake is pending
      STRATA_ASSERT(false, "waking the I/O worker: errno ", errno);
  }

  int register_buffer(std::uint32_t index, BufferView buffer) override {
    if (sparse_error_ != 0) return sparse_error_;
    const iovec part{buffer.data, buffer.bytes};
    const __u64 tag = 0;
    const int n = io_uring_register_buffers_update_tag(&ring_, index, &part, &tag, 1);
    return n == 1 ? 0 : (n < 0 ? n : -EINVAL);
  }

 private:
  explicit UringRing(std::span<const int> descriptors)
      : descriptors_(descriptors.begin(), descriptors.end()) {}

  Status open(std::uint32_t queue_depth) {
    // One more entry for the wake-up. Completions are only needed inside enter(), so the kernel need not
    // interrupt the worker to deliver them (COOP_TASKRUN, Linux 5.19).
    const std::uint32_t entries = queue_depth + 1;
    int error = io_uring_queue_init(entries, &ring_, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP);
    if (error == -EINVAL) error = io_uring_queue_init(entries, &ring_, IORING_SETUP_CLAMP);
    if (error < 0)
      return Status::error(Code::unsupported,
                           std::string(errno_status("setting up", "io_uring", -error).message()));
    open_ = true;
    note_mapped();
    capacity_ = std::min(queue_depth, ring_.sq.ring_entries - 1);  // the completion queue is twice that
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) return errno_status("creating the wake-up of", "io_uring", errno);
    fixed_files_ =
        io_uring_register_files(&ring_, descriptors_.data(), static_cast<unsigned>(descriptors_.size())) == 0;
    sparse_error_ = io_uring_register_buffers_sparse(&ring_, kMaxBuffers);
    return Status::ok();
  }

  // Polls the event instead of reading it: a pending poll has no memory that the kernel could still write to
  // after destruction.
  void arm_wake() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return;  // queued operations complete first; then an entry is free
    io_uring_prep_poll_add(sqe, event_, POLLIN);
    io_uring_sqe_set_data64(sqe, kWakeTag);
    wake_armed_ = true;
  }

  const std::vector<int> descriptors_;
  io_uring ring_{};
  bool open_ = false;
  bool fixed_files_ = false;
  bool wake_armed_ = false;
  int sparse_error_ = 0;
  int event_ = -1;
  std::uint32_t capacity_ = 0;
};

}  // namespace

Result<std::unique_ptr<RingOps>> make_uring(std::span<const int> descriptors, std::uint32_t queue_depth) {
  return UringRing::create(descriptors, queue_depth);
}

}  // namespace strata::detail
