#include "nccl/nccl_work.h"

#include <algorithm>

namespace strata::detail {

Status NcclWork::end(const Ending& ending, ThreadPool&) {
  NcclWork* const work = ending.work;
  // The failure first: once all has ended, the object may be destroyed.
  Status failure = work->comm_.failure();
  work->ended_.fetch_add(1);
  return failure;
}

Status NcclWork::queue_end(Stream& stream) {
  STRATA_TRY(backend_.host_call_async(HostCall("nccl", end, Ending{this}), stream));
  STRATA_TRY_ASSIGN(const Event event, backend_.record(stream));
  const MutexLock lock(mutex_);
  const auto same = std::find_if(last_.begin(), last_.end(),
                                 [&](const Event& last) { return last.stream == event.stream; });
  if (same == last_.end())
    last_.push_back(event);
  else
    *same = event;
  queued_.fetch_add(1);
  return {};
}

std::vector<Event> NcclWork::last_events() {
  const MutexLock lock(mutex_);
  return last_;
}

bool NcclWork::look_whether_idle() {
  const std::uint64_t queued = queued_.load();  // before the events, so that they include it
  const std::vector<Event> events = last_events();
  if (!std::all_of(events.begin(), events.end(),
                   [&](const Event& event) { return backend_.is_complete(event); }))
    return false;
  const std::uint64_t ended = ended_.load() + skipped_.load();
  if (queued > ended) skipped_.fetch_add(queued - ended);
  return true;
}

void NcclWork::wait() {
  for (const Event& event : last_events()) (void)backend_.wait(event);  // its error is of its stream
}

}  // namespace strata::detail
