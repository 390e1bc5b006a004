#include "threads/thread_group.h"

#include <algorithm>
#include <array>

#include <strata/parallel/thread_groups.h>
#include <strata/runtime/str.h>

#include "reduce.h"

namespace strata {
namespace detail {
namespace {

/// A reduction as the state of a HostCall, which holds the list of parts, too.
struct QueuedReduction {
  std::array<const std::byte*, kMaxThreadRanks> parts;
  std::size_t n_parts;
  ReduceArgs args;
};
void run_reduction(const QueuedReduction& queued, ThreadPool& pool) {
  ReduceArgs args = queued.args;
  args.parts = {queued.parts.data(), queued.n_parts};
  reduce(args, pool);
}

/// The buffer of a rank that others read.
const std::byte* source(const Collective& call) noexcept {
  return call.send.data != nullptr ? call.send.data : call.receive.data;
}

}  // namespace

SharedGroup::SharedGroup(int n_ranks, Backend& on, WatchedRanks watched)
    : size(n_ranks), backend(on), watched_ranks(std::move(watched)), all(n_ranks, watched_ranks) {
  for (int from = 0; from < n_ranks; ++from)
    for (int to = 0; to < n_ranks; ++to)
      pairs.push_back(std::make_unique<Meeting>(2, watched_ranks.part(std::array{from, to})));
}

ThreadGroup::~ThreadGroup() { leave(); }

void ThreadGroup::leave() {
  shared_->all.leave(rank_);
  for (int peer = 0; peer < size(); ++peer) {
    shared_->pair(rank_, peer).leave(0);
    shared_->pair(peer, rank_).leave(1);
  }
}

Result<ThreadGroup::Contributions> ThreadGroup::meet(Meeting& meeting, int as, const Collective& call,
                                                     Status status, Stream& stream) {
  Contribution mine{.rank = rank_, .call = call, .status = std::move(status)};
  Result<Event> event = shared_->backend.record(stream);
  if (event.has_value())
    mine.event = *event;
  else if (mine.status.is_ok())
    mine.status = event.status();
  STRATA_TRY_ASSIGN(const Contributions all, meeting.meet(as, mine));
  for (const Contribution& other : all)
    if (!other.status.is_ok()) return other.status.annotate(str("rank ", other.rank));
  for (const Contribution& other : all.subspan(1))
    STRATA_TRY(check_match(all[0].call, all[0].rank, other.call, other.rank));
  for (const Contribution& other : all)
    if (Status waits = shared_->backend.wait_on_async(other.event, stream); !waits.is_ok()) {
      leave();  // the others do not know of this failure, and would wait for this rank at the next meeting
      return waits;
    }
  return all;
}

Status ThreadGroup::queue(const Collective& call, Stream& stream) {
  Status checked = check(call, rank_, size());
  const bool sends = call.kind == CollectiveKind::send, receives = call.kind == CollectiveKind::receive;
  if ((sends || receives) && !checked.is_ok()) return checked;  // there may be no such rank to meet
  Meeting& meeting = sends      ? shared_->pair(rank_, call.peer)
                     : receives ? shared_->pair(call.peer, rank_)
                                : shared_->all;
  const int as = sends ? 0 : receives ? 1 : rank_;
  STRATA_TRY_ASSIGN(const Contributions all, meet(meeting, as, call, checked, stream));
  const Status queued = queue_work(call, all, stream);
  // Nobody may overwrite what others are still reading.
  STRATA_TRY(meet(meeting, as, call, queued, stream).status());
  const CollectiveBytes bytes = wire_bytes(call, rank_, size());
  ++counters_.calls;
  counters_.sent_bytes += bytes.sent;
  counters_.received_bytes += bytes.received;
  return {};
}

Status ThreadGroup::copy(BufferView to, const std::byte* from, Stream& stream) {
  if (to.bytes == 0 || to.data == from) return {};
  return shared_->backend.copy_async(to, {from, to.bytes}, stream);
}

Status ThreadGroup::queue_work(const Collective& call, Contributions all, Stream& stream) {
  const auto n = static_cast<std::size_t>(size()), me = static_cast<std::size_t>(rank_);
  switch (call.kind) {
    case CollectiveKind::all_gather:
      for (std::size_t q = 0; q < n; ++q)
        STRATA_TRY(
            copy(call.receive.part(q * call.send.bytes, call.send.bytes), all[q].call.send.data, stream));
      return {};
    case CollectiveKind::all_to_all:
      for (std::size_t q = 0, part = call.send.bytes / n; q < n; ++q)
        STRATA_TRY(copy(call.receive.part(q * part, part), all[q].call.send.data + me * part, stream));
      return {};
    case CollectiveKind::reduce_scatter:
      return queue_reduction(call, all, call.receive, me * call.receive.bytes, stream);
    case CollectiveKind::all_reduce:
      return queue_all_reduce(call, all, stream);
    case CollectiveKind::broadcast:
      return copy(call.receive, all[static_cast<std::size_t>(call.peer)].call.receive.data, stream);
    case CollectiveKind::shift:
      return copy(call.receive, all[(me + static_cast<std::size_t>(call.peer)) % n].call.send.data, stream);
    case CollectiveKind::receive:
      return copy(call.receive, all[0].call.send.data, stream);
    case CollectiveKind::send:
      return {};
  }
  return {};
}

// Each rank reduces one part in place, which nobody else reads, and then copies the parts of the others.
Status ThreadGroup::queue_all_reduce(const Collective& call, Contributions all, Stream& stream) {
  const auto begin = [&](int rank) { return part_begin(call.receive.bytes, call.dtype, rank, size()); };
  const std::size_t mine = begin(rank_);
  const Status reduced =
      queue_reduction(call, all, call.receive.part(mine, begin(rank_ + 1) - mine), mine, stream);
  STRATA_TRY_ASSIGN(const Contributions done, meet(shared_->all, rank_, call, reduced, stream));
  for (int q = 0; q < size(); ++q) {
    const BufferView part = call.receive.part(begin(q), begin(q + 1) - begin(q));
    STRATA_TRY(copy(part, done[static_cast<std::size_t>(q)].call.receive.data + begin(q), stream));
  }
  return {};
}

Status ThreadGroup::queue_reduction(const Collective& call, Contributions all, BufferView into,
                                    std::size_t offset, Stream& stream) {
  if (into.bytes == 0) return {};
  QueuedReduction queued{
      .parts = {}, .n_parts = all.size(), .args = {{}, into.data, into.bytes, call.dtype, call.reduction}};
  for (std::size_t q = 0; q < all.size(); ++q) queued.parts[q] = source(all[q].call) + offset;
  HostCall work("reduce", run_reduction, queued);
  work.writes(into.data, into.bytes);
  for (std::size_t q = 0; q < all.size(); ++q)
    if (queued.parts[q] != into.data) work.reads(queued.parts[q], into.bytes);
  return shared_->backend.host_call_async(work, stream);
}

Result<std::unique_ptr<ProcessGroup>> ThreadGroup::split(std::span<const int> members) {
  STRATA_TRY_ASSIGN(const Contributions all, shared_->all.meet(rank_, {.rank = rank_, .members = members}));
  Contribution mine{.rank = rank_, .status = check_members(members, rank_, size())};
  for (std::size_t i = 0; mine.status.is_ok() && i < members.size(); ++i)
    if (!std::ranges::equal(all[static_cast<std::size_t>(members[i])].members, members))
      mine.status = Status::error(Code::invalid, str("ranks ", rank_, " and ", members[i],
                                                     " do not list the same ranks for their group"));
  if (mine.status.is_ok() && members.front() == rank_)
    mine.shared = std::make_shared<SharedGroup>(static_cast<int>(members.size()), shared_->backend,
                                                shared_->watched_ranks.part(members));
  STRATA_TRY_ASSIGN(const Contributions made, shared_->all.meet(rank_, mine));
  for (const Contribution& other : made) STRATA_TRY(other.status);
  auto group = std::static_pointer_cast<SharedGroup>(made[static_cast<std::size_t>(members.front())].shared);
  const auto position = std::find(members.begin(), members.end(), rank_) - members.begin();
  return std::make_unique<ThreadGroup>(std::move(group), static_cast<int>(position));
}

Result<std::vector<std::unique_ptr<ProcessGroup>>> create_watched_groups(int size, Backend& backend,
                                                                         WatchedRanks watched) {
  if (size < 1 || size > kMaxThreadRanks)
    return Status::error(Code::invalid,
                         str("a group of threads has 1 to ", kMaxThreadRanks, " ranks, not ", size));
  if (backend.info().kind == DeviceKind::cuda)
    return Status::error(Code::unsupported, "threads as ranks work on the host backend only");
  const auto shared = std::make_shared<SharedGroup>(size, backend, std::move(watched));
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int rank = 0; rank < size; ++rank) groups.push_back(std::make_unique<ThreadGroup>(shared, rank));
  return groups;
}

}  // namespace detail

Result<std::vector<std::unique_ptr<ProcessGroup>>> create_thread_groups(int size, Backend& backend) {
  return detail::create_watched_groups(size, backend, {});
}

}  // namespace strata
