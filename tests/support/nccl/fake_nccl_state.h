#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/nccl/fake_nccl.h"

// The state that the parts of libfake_nccl.so share. All collectives are messages between two ranks. The k-th
// message of a communicator from one rank to another is received by the k-th receive, in the order of the
// calls, whatever streams run them.
namespace strata::test::fake_nccl {

constexpr int kMaxRanks = 16, kMaxTransfers = 2 * kMaxRanks;
constexpr int kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;

struct Comm;
struct Clique {
  int size = 0, joined = 0;
  const Clique* parent = nullptr;  // that was split
  Comm* members[kMaxRanks] = {};
};
struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  bool dead = false, aborted = false;
  int polls_left = 0, async_error = 0;
  long sends[kMaxRanks] = {}, receives[kMaxRanks] = {};
  // A split that is in progress.
  int color = -1, key = 0, n_splits = 0;
  void** child = nullptr;
};
struct Transfer {
  bool sends = false, done = false;
  int peer = 0;
  long number = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};
/// A group of operations on one stream, or one operation.
struct Work {
  bool used = false, runs = false;
  Comm* comm = nullptr;
  void* stream = nullptr;
  int n = 0;
  Transfer transfers[kMaxTransfers];
};
/// A send that has not been received.
struct Message {
  Clique* clique;
  int from, to;
  long number;
  Transfer* transfer;
};

inline std::mutex mutex;  // guards all that follows
inline std::condition_variable changed;
// Objects that NCCL calls refer to are kept: work of a stream that has failed never runs.
inline std::deque<Comm> comms;
inline std::deque<Work> works;
inline std::vector<Message> messages;
struct Pending {
  std::string id;
  std::shared_ptr<Clique> clique;
};
inline std::vector<Pending> joining;
// Identified by parent, split and color.
inline std::vector<std::pair<std::string, std::shared_ptr<Clique>>> splits;
inline std::atomic<FakeNccl::Launch> launch{nullptr};
inline int version = 22809, polls = 0, n_ids = 0;
inline bool notices = true;

/// Counts calls of a thread, of which one fails.
struct Plan {
  int calls = 0, failing = 0, result = 0;
};
inline thread_local Plan call_plan, poll_plan;
inline thread_local int depth = 0;
inline thread_local Work* group = nullptr;
inline thread_local int group_error = 0;
inline thread_local std::string last_error;

[[noreturn]] inline void die(const char* why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why);
  std::abort();
}
inline int error(int result, const char* text) {
  last_error = text;
  return result;
}
inline int enter(const char* function, Plan& plan = call_plan) {
  if (++plan.calls != plan.failing) return 0;
  return error(plan.result, (std::string("planted in ") + function).c_str());
}
inline Comm& live(void* comm) {
  auto* const found = static_cast<Comm*>(comm);
  if (found == nullptr || found->dead) die("a communicator is used that has ended");
  return *found;
}
inline int started(Comm& comm) {
  comm.polls_left = polls;
  return polls > 0 ? kInProgress : 0;
}
inline bool is_busy(const Comm& comm) { return comm.polls_left > 0 || comm.color >= 0; }
inline bool is_incomplete(const Comm& comm) { return comm.clique->joined < comm.clique->size; }

// fake_nccl_work.cpp. All with the mutex held; finish() releases it.
void start_group();
int add(void* comm, void* stream, int peer, bool sends, const void* data, std::size_t bytes);
int finish(std::unique_lock<std::mutex>& lock, int result);

}  // namespace strata::test::fake_nccl
