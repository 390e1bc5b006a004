// The functions of NCCL that strata uses.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/nccl/fake_nccl_state.h"

using namespace strata::test::fake_nccl;

#define FAKE_ENTER() \
  if (const int planted = enter(__func__); planted != 0) return planted

namespace {

Comm& make_comm(std::shared_ptr<Clique> clique, int rank) {
  Comm& comm = comms.emplace_back();
  comm.clique = std::move(clique);
  comm.rank = rank;
  comm.clique->members[rank] = &comm;
  ++comm.clique->joined;
  changed.notify_all();
  return comm;
}

bool waits_for(const Comm& comm, int peer) {
  for (const Work& work : works)
    for (int i = 0; i < work.n && work.runs && work.comm == &comm; ++i)
      if (work.transfers[i].peer == peer && !work.transfers[i].done) return true;
  return false;
}
bool any_aborted(const Clique& clique) {
  for (const Comm* const member : clique.members)
    if (member != nullptr && member->aborted) return true;
  return false;
}
bool peer_is_gone(const Comm& comm) {
  const Clique& clique = *comm.clique;
  for (int q = 0; q < clique.size; ++q)
    if (clique.members[q] != nullptr && clique.members[q]->dead && waits_for(comm, q)) return true;
  if (!is_incomplete(comm) && comm.color < 0) return false;
  return any_aborted(clique) || (clique.parent != nullptr && any_aborted(*clique.parent));
}

// Each rank joins its part when all ranks of the parent have come.
void try_split(Comm& comm) {
  int size = 0;
  for (int q = 0; q < comm.clique->size; ++q) {
    const Comm* const other = comm.clique->members[q];
    const bool came = other != nullptr && (other->n_splits > comm.n_splits ||
                                           (other->n_splits == comm.n_splits && other->color >= 0));
    if (!came) return;
  }
  for (int q = 0; q < comm.clique->size; ++q) size += comm.clique->members[q]->color == comm.color ? 1 : 0;
  char name[80];
  std::snprintf(name, sizeof name, "%p %d %d", static_cast<void*>(comm.clique.get()), comm.n_splits,
                comm.color);
  std::shared_ptr<Clique> clique;
  for (const auto& [split, made] : splits)
    if (split == name) clique = made;
  if (clique == nullptr) {
    clique = splits.emplace_back(name, std::make_shared<Clique>()).second;
    clique->size = size;
    clique->parent = comm.clique.get();
  }
  *comm.child = &make_comm(clique, comm.key);
  ++comm.n_splits;
  comm.color = -1;
}

int end(void* handle, bool aborted) {
  const std::lock_guard lock(mutex);
  Comm& comm = live(handle);
  if (!aborted && is_busy(comm)) return error(kInvalidArgument, "the communicator is in progress");
  comm.dead = true;
  comm.aborted = aborted;
  // Its memory may be gone before its stream gets to the end of its work.
  std::erase_if(messages, [&](const Message& message) {
    return message.clique == comm.clique.get() && message.from == comm.rank;
  });
  changed.notify_all();
  return 0;
}

}  // namespace

extern "C" {

struct ncclUniqueId {
  char internal[128];
};

int ncclGetVersion(int* out) {
  FAKE_ENTER();
  *out = version;
  return 0;
}
const char* ncclGetErrorString(int result) {
  return result == kRemoteError ? "remote process exited" : "fake error";
}
const char* ncclGetLastError(void*) { return last_error.c_str(); }

int ncclGetUniqueId(ncclUniqueId* id) {
  FAKE_ENTER();
  const std::lock_guard lock(mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  if (const char* const given = std::getenv("NCCL_COMM_ID"); given != nullptr)
    std::snprintf(id->internal, sizeof id->internal, "%s", given);
  else
    std::snprintf(id->internal, sizeof id->internal, "id %d", ++n_ids);
  return 0;
}

int ncclCommInitRankConfig(void** out, int n_ranks, ncclUniqueId id, int rank, void*) {
  FAKE_ENTER();
  const std::lock_guard lock(mutex);
  std::shared_ptr<Clique> clique;
  for (const Pending& pending : joining)
    if (pending.id == id.internal) clique = pending.clique;
  if (clique == nullptr) {
    clique = joining.emplace_back(Pending{id.internal, std::make_shared<Clique>()}).clique;
    clique->size = n_ranks;
  }
  Comm& comm = make_comm(clique, rank);
  *out = &comm;
  (void)started(comm);
  return kInProgress;
}

int ncclCommSplit(void* handle, int color, int key, void** child, void*) {
  FAKE_ENTER();
  const std::lock_guard lock(mutex);
  Comm& comm = live(handle);
  if (is_busy(comm)) return error(kInvalidArgument, "the communicator is in progress");
  comm.color = color;
  comm.key = key;
  comm.child = child;
  (void)started(comm);
  return kInProgress;
}

int ncclCommGetAsyncError(void* handle, int* state) {
  if (const int planted = enter(__func__, poll_plan); planted != 0) return planted;
  const std::lock_guard lock(mutex);
  Comm& comm = live(handle);
  *state = comm.async_error;
  if (comm.async_error != 0) return 0;
  if (notices && peer_is_gone(comm)) {
    *state = error(kRemoteError, "a rank has closed its connection");
    return 0;
  }
  if (comm.color >= 0) try_split(comm);
  if (comm.polls_left > 0) --comm.polls_left;
  *state = is_busy(comm) || is_incomplete(comm) ? kInProgress : 0;
  return 0;
}

int ncclCommFinalize(void* handle) {
  FAKE_ENTER();
  const std::lock_guard lock(mutex);
  Comm& comm = live(handle);
  return is_busy(comm) ? error(kInvalidArgument, "the communicator is in progress") : started(comm);
}
// A planted error does not keep them from ending the communicator.
int ncclCommDestroy(void* handle) {
  const int ended = end(handle, false);
  FAKE_ENTER();
  return ended;
}
int ncclCommAbort(void* handle) {
  const int ended = end(handle, true);
  FAKE_ENTER();
  return ended;
}

int ncclGroupStart() {
  FAKE_ENTER();
  ++depth;
  return 0;
}
int ncclGroupEnd() {
  if (depth == 0) die("ncclGroupEnd without ncclGroupStart");
  const int planted = enter(__func__);
  std::unique_lock lock(mutex);
  if (planted != 0) group_error = planted;
  return finish(lock, 0);
}

int ncclSend(const void* data, std::size_t count, int, int peer, void* comm, void* stream) {
  FAKE_ENTER();
  std::unique_lock lock(mutex);
  start_group();
  return finish(lock, add(comm, stream, peer, true, data, count));
}
int ncclRecv(void* data, std::size_t count, int, int peer, void* comm, void* stream) {
  FAKE_ENTER();
  std::unique_lock lock(mutex);
  start_group();
  return finish(lock, add(comm, stream, peer, false, data, count));
}
int ncclAllGather(const void* send, void* receive, std::size_t count, int, void* handle, void* stream) {
  FAKE_ENTER();
  std::unique_lock lock(mutex);
  start_group();
  const Comm& comm = live(handle);
  auto* const into = static_cast<std::byte*>(receive);
  int result = 0;
  for (int q = 0; q < comm.clique->size && result == 0; ++q) {
    std::byte* const slot = into + static_cast<std::size_t>(q) * count;
    if (q == comm.rank && slot == send) continue;
    result = add(handle, stream, q, true, send, count);
    if (result == 0) result = add(handle, stream, q, false, slot, count);
  }
  return finish(lock, result);
}
int ncclBroadcast(const void* send, void* receive, std::size_t count, int, int root, void* handle,
                  void* stream) {
  FAKE_ENTER();
  std::unique_lock lock(mutex);
  start_group();
  const Comm& comm = live(handle);
  int result = 0;
  if (comm.rank != root) result = add(handle, stream, root, false, receive, count);
  for (int q = 0; q < comm.clique->size && comm.rank == root && result == 0; ++q)
    if (q != root) result = add(handle, stream, q, true, send, count);
  return finish(lock, result);
}

const strata::test::FakeNccl* fake_nccl() {
  static const strata::test::FakeNccl control = {
      .set_launch = [](strata::test::FakeNccl::Launch to) { launch = to; },
      .set_version = [](int to) { version = to; },
      .set_polls = [](int to) { polls = to; },
      .set_notices = [](bool to) { notices = to; },
      .fail_call =
          [](int k, int result) {
            call_plan = {0, k, result};
          },
      .fail_poll =
          [](int k, int result) {
            poll_plan = {0, k, result};
          },
      .n_calls = [] { return call_plan.calls; },
      .set_async_error =
          [](int rank, int result) {
            const std::lock_guard lock(mutex);
            for (Comm& comm : comms)
              if (!comm.dead && comm.rank == rank) comm.async_error = result;
          },
      .n_live =
          [] {
            const std::lock_guard lock(mutex);
            int n = 0;
            for (const Comm& comm : comms) n += comm.dead ? 0 : 1;
            return n;
          },
      .group_depth = [] { return depth; },
  };
  return &control;
}

}  // extern "C"
