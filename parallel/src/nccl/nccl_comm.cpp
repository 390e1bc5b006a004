#include "nccl/nccl_comm.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

using std::chrono::steady_clock;

constexpr int kYields = 200;  // then it sleeps between two polls
constexpr std::chrono::microseconds kPollNap{50};
constexpr int kPollsBetweenLooks = 400;  // for other ranks' failures, some 20 ms
constexpr std::chrono::milliseconds kCloseWait{5000};

}  // namespace

NcclComm::~NcclComm() { abort(); }

Status NcclComm::error(const NcclOutcome& outcome) {
  const char* const last = api_->last_error(comm_);
  const bool says_more = last != nullptr && *last != '\0';
  return Status::error(Code::lost_peer,
                       str("rank ", rank_, " of ", size_, ": ", outcome.function, ": ",
                           api_->error_string(outcome.result), says_more ? ": " : "", says_more ? last : ""));
}

Status NcclComm::start(const NcclUniqueId& id) {
  const MutexLock lock(calls_mutex_);
  const ThirdPartyScope scope;
  NcclConfig config;
  const NcclOutcome outcome{"ncclCommInitRankConfig", api_->init_rank(&comm_, size_, id, rank_, &config)};
  return outcome.is_error() ? error(outcome) : Status();
}

Status NcclComm::wait_until_joined(const PeerFailure& peer_failure) {
  return wait_until_ready("ncclCommInitRankConfig", timeout_, peer_failure);
}

Result<std::unique_ptr<NcclComm>> NcclComm::split(int color, int rank, int size) {
  {
    const MutexLock lock(calls_mutex_);
    const ThirdPartyScope scope;
    if (comm_ == nullptr) return has_ended();
    NcclConfig config;
    const NcclOutcome outcome{"ncclCommSplit", api_->split(comm_, color, rank, &child_, &config)};
    if (outcome.is_error()) return error(outcome);
  }
  STRATA_TRY(wait_until_ready("ncclCommSplit", timeout_));
  auto made = std::make_unique<NcclComm>(api_, rank, size, timeout_);
  {
    const MutexLock lock(calls_mutex_);
    const MutexLock made_lock(made->calls_mutex_);
    made->comm_ = std::exchange(child_, nullptr);
  }
  STRATA_TRY(made->wait_until_ready("ncclCommSplit", timeout_));
  return made;
}

// False while the communicator still works at its last call.
Result<bool> NcclComm::is_ready(const char* function) {
  const MutexLock lock(calls_mutex_);
  const ThirdPartyScope scope;
  if (comm_ == nullptr) return has_ended();
  int state = kNcclSuccess;
  const NcclOutcome asked{"ncclCommGetAsyncError", api_->get_async_error(comm_, &state)};
  if (asked.is_error()) return error(asked);
  const NcclOutcome outcome{function, state};
  if (outcome.is_error()) return error(outcome);
  return state == kNcclSuccess;
}

Status NcclComm::wait_until_ready(const char* function, Milliseconds limit, const PeerFailure& peer_failure) {
  const steady_clock::time_point give_up_at = steady_clock::now() + limit;
  for (int polls = 0;; ++polls) {
    STRATA_TRY_ASSIGN(const bool ready, is_ready(function));
    if (ready) return {};
    if (polls < kYields) {
      std::this_thread::yield();
      continue;
    }
    if (steady_clock::now() > give_up_at)
      return Status::error(Code::lost_peer,
                           str("rank ", rank_, " of ", size_, ": ", function, ": not done after ",
                               limit.count(), " ms: another rank has ended, hangs, or makes other calls"));
    if (peer_failure && polls % kPollsBetweenLooks == 0) STRATA_TRY(peer_failure());
    std::this_thread::sleep_for(kPollNap);
  }
}

Status NcclComm::check() { return is_ready("ncclCommGetAsyncError").status(); }

Status NcclComm::failure() {
  if (!failed_.load()) return {};
  const MutexLock lock(failure_mutex_);
  return failure_;
}

Status NcclComm::has_ended() {
  Status why = failure();
  return why.is_ok() ? Status::error(Code::lost_peer, "this rank has left the group") : why;
}

Status NcclComm::fail(const Status& why) {
  {
    const MutexLock lock(failure_mutex_);
    if (failure_.is_ok()) failure_ = Status::error(Code::lost_peer, std::string(why.message()));
    failed_.store(true);
  }
  abort();
  return failure();
}

void NcclComm::abort() {
  const MutexLock lock(calls_mutex_);
  if (comm_ == nullptr) return;
  const ThirdPartyScope scope;
  (void)api_->abort(comm_);  // there is nobody to report an error to
  comm_ = nullptr;
  if (child_ != nullptr) (void)api_->abort(std::exchange(child_, nullptr));  // made, but never taken
}

void NcclComm::close() {
  bool closes = false;
  {
    const MutexLock lock(calls_mutex_);
    if (comm_ == nullptr) return;
    const ThirdPartyScope scope;
    closes = !NcclOutcome{"ncclCommFinalize", api_->finalize(comm_)}.is_error();
  }
  closes = closes && wait_until_ready("ncclCommFinalize", std::min(kCloseWait, timeout_)).is_ok();
  if (!closes) return abort();
  const MutexLock lock(calls_mutex_);
  const ThirdPartyScope scope;
  if (comm_ != nullptr) (void)api_->destroy(comm_);  // null if the watch has aborted it meanwhile
  comm_ = nullptr;
}

}  // namespace strata::detail
