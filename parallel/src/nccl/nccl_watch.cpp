#include "nccl/nccl_watch.h"

#include <pthread.h>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};

}  // namespace

NcclWatch::NcclWatch(NcclComm& comm, NcclWork& work, std::function<Status()> peer_failure)
    : comm_(comm), work_(work), peer_failure_(std::move(peer_failure)), thread_([this] { run(); }) {}

NcclWatch::~NcclWatch() {
  const MutexLock lock(mutex_);
  stop_ = true;
  changed_.notify_all();
}

void NcclWatch::run() noexcept {
  (void)::pthread_setname_np(::pthread_self(), "st-nccl");
  try {
    while (!comm_.has_failed()) {
      {
        const MutexLock lock(mutex_);
        if (!stop_) changed_.wait_for(mutex_, kBetweenLooks);
        if (stop_) return;
      }
      if (const Status status = look(); !status.is_ok()) (void)comm_.fail(status);
    }
  } catch (const std::exception& e) {
    (void)comm_.fail(Status::error(Code::internal, str("the watch of NCCL threw: ", e.what())));
  }
}

Status NcclWatch::look() {
  STRATA_TRY(comm_.check());
  if (peer_failure_) STRATA_TRY(peer_failure_());
  const Clock::time_point now = Clock::now();
  if (const std::uint64_t ended = work_.ended(); ended != ended_ || work_.is_idle()) {
    ended_ = ended;
    progressed_at_ = now;
  }
  if (now - progressed_at_ < comm_.timeout() || work_.look_whether_idle()) return {};
  return Status::error(Code::lost_peer, str("rank ", comm_.rank(), " of ", comm_.size(),
                                            ": no collective has ended for ", comm_.timeout().count(),
                                            " ms: another rank has ended, hangs, or makes other calls"));
}

}  // namespace strata::detail
