// libstrata_mpi.so: the functions of mpi_api.h by calls of MPI. Errors are returned, never fatal.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "mpi/module/local_messages.h"
#include "mpi/mpi_api.h"

namespace strata::detail {
namespace {

// Errors of our own, outside of MPI's range.
constexpr int kAlreadyStarted = -1, kNoThreads = -2, kTooLong = -3, kUnequalRanks = -4;

constexpr int kChannels = 3;

/// MPI knows processes. Ranks of one process are told apart by communicators of their own, as receivers, and
/// by the tags, as senders.
struct Process {
  std::mutex mutex;  // guards MPI's calls, if the process has several ranks
  int ranks = 0;     // 0: MPI has not been started
  bool started[kMaxRanksHere] = {};
  int error = 0;   // the error of the start
  int ended = 0;   // ranks that have called finalize()
  int number = 0;  // the number of the process
  MPI_Comm communicators[kMaxRanksHere][kChannels] = {};
  LocalMessages local;  // messages of the channel `data`
};
Process process;        // NOLINT: an MPI library is global, too
thread_local int here;  // NOLINT: index of the rank of this thread

std::unique_lock<std::mutex> lock() {
  return process.ranks > 1 ? std::unique_lock(process.mutex) : std::unique_lock<std::mutex>();
}
MPI_Comm communicator(MpiChannel channel, int index) {
  return process.communicators[index][static_cast<int>(channel)];
}
int tag_from(int index, int tag) { return tag * process.ranks + index; }

bool is_here(MpiChannel channel, int rank) {
  return channel == MpiChannel::data && process.ranks > 1 && rank / process.ranks == process.number;
}
int own_rank() { return process.number * process.ranks + here; }
LocalMessages::Message* local(const MpiRequest& request) {
  return static_cast<LocalMessages::Message*>(request.handle);
}

static_assert(sizeof(MPI_Request) <= sizeof(MpiRequest::handle));
MPI_Request get(const MpiRequest& request) {
  MPI_Request handle;
  std::memcpy(&handle, &request.handle, sizeof(MPI_Request));
  return handle;
}
void set(MpiRequest& request, MPI_Request handle) {
  std::memcpy(&request.handle, &handle, sizeof(MPI_Request));
  request.is_local = false;
}

// All processes must have the same number of ranks.
int check_ranks() {
  int range[2] = {process.ranks, -process.ranks}, least[2];
  if (const int error = MPI_Allreduce(range, least, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD); error != 0)
    return error;
  return least[0] == -least[1] ? 0 : kUnequalRanks;
}

int open_communicators() {
  // The communicator of the world needs it, too: the default handler ends the process at the first error.
  if (const int error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); error != 0) return error;
  if (const int error = check_ranks(); error != 0) return error;
  for (int index = 0; index < process.ranks; ++index)
    for (MPI_Comm& made : process.communicators[index]) {
      if (const int error = MPI_Comm_dup(MPI_COMM_WORLD, &made); error != 0) return error;
      if (const int error = MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN); error != 0) return error;
    }
  return 0;
}

int start(int ranks) {
  int started = 0, provided = 0;
  MPI_Initialized(&started);
  if (started != 0) return kAlreadyStarted;
  process.ranks = ranks;
  const int level = ranks == 1 ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED;
  if (const int error = MPI_Init_thread(nullptr, nullptr, level, &provided); error != 0) return error;
  MPI_Comm_rank(MPI_COMM_WORLD, &process.number);
  return provided < level ? kNoThreads : open_communicators();
}

void describe_world(MpiInfo* info) {
  info->rank = own_rank();
  MPI_Comm_size(MPI_COMM_WORLD, &info->size);
  int* largest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found);
  info->size *= process.ranks;
  info->largest_tag = (found != 0 ? *largest : 32767) / process.ranks;  // 32767: what the standard guarantees
  char host[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(host, &length);
  std::snprintf(info->host, sizeof info->host, "%s", host);
}

int init(MpiInfo* info) {
  const std::lock_guard guard(process.mutex);
  here = info->here;
  if (process.ranks == 0) process.error = start(info->ranks_here);
  if (process.started[here]) return kAlreadyStarted;
  process.started[here] = true;
  if (process.error == 0) describe_world(info);
  return process.error;
}

int isend(MpiChannel channel, const void* data, std::size_t bytes, int to, int tag, MpiRequest* request) {
  if (bytes > INT_MAX) return kTooLong;
  const auto held = lock();
  if (is_here(channel, to)) {
    *request = {process.local.post({true, own_rank(), to, tag, data, nullptr, bytes}), true};
    return 0;
  }
  MPI_Request handle = MPI_REQUEST_NULL;
  const int error = MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to / process.ranks,
                              tag_from(here, tag), communicator(channel, to % process.ranks), &handle);
  set(*request, handle);
  return error;
}

int irecv(MpiChannel channel, void* data, std::size_t bytes, int from, int tag, MpiRequest* request) {
  if (bytes > INT_MAX) return kTooLong;
  const auto held = lock();
  if (is_here(channel, from)) {
    *request = {process.local.post({false, from, own_rank(), tag, nullptr, data, bytes}), true};
    return 0;
  }
  MPI_Request handle = MPI_REQUEST_NULL;
  const int source = from == kAnyRank ? MPI_ANY_SOURCE : from / process.ranks;
  const int sent_as = channel == MpiChannel::any ? MPI_ANY_TAG : tag_from(from % process.ranks, tag);
  const int error = MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source, sent_as,
                              communicator(channel, here), &handle);
  set(*request, handle);
  return error;
}

int test(MpiRequest* request, int* done, MpiReceived* received) {
  const auto held = lock();
  if (request->is_local) {
    *done = process.local.test(local(*request), received) ? 1 : 0;
    return 0;
  }
  MPI_Request handle = get(*request);
  MPI_Status status;
  const int error = MPI_Test(&handle, done, &status);
  set(*request, handle);
  if (error != 0) {
    *done = 1;
    int kind = 0;
    MPI_Error_class(error, &kind);
    received->truncated = kind == MPI_ERR_TRUNCATE;
    return error;
  }
  if (*done == 0) return 0;
  int bytes = 0, cancelled = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  MPI_Test_cancelled(&status, &cancelled);
  // The source means nothing if the request is a send.
  const int source = status.MPI_SOURCE * process.ranks + status.MPI_TAG % process.ranks;
  *received = {source, static_cast<std::size_t>(std::max(bytes, 0)), cancelled != 0, false};
  return 0;
}

int cancel(MpiRequest* request) {
  const auto held = lock();
  if (request->is_local) {
    process.local.cancel(local(*request));
    return 0;
  }
  MPI_Request handle = get(*request);
  return MPI_Cancel(&handle);
}

int abandon(MpiRequest* request) {
  const auto held = lock();
  if (request->is_local) {
    process.local.abandon(local(*request));
    return 0;
  }
  MPI_Request handle = get(*request);
  return MPI_Request_free(&handle);
}

int finalize() {
  const std::lock_guard guard(process.mutex);
  return ++process.ended == process.ranks ? MPI_Finalize() : 0;
}

void describe(int error, char* text, std::size_t bytes) {
  const char* own = error == kAlreadyStarted ? "this process has started MPI before; it can do so only once"
                    : error == kNoThreads    ? "this MPI does not allow a process with several threads"
                    : error == kTooLong      ? "a message is longer than MPI can count"
                    : error == kUnequalRanks ? "processes differ in their numbers of ranks"
                                             : nullptr;
  char found[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (own == nullptr) MPI_Error_string(error, found, &length);
  std::snprintf(text, bytes, "%s", own != nullptr ? own : found);
}

}  // namespace
}  // namespace strata::detail

extern "C" __attribute__((visibility("default"))) const strata::detail::MpiApi* strata_mpi_api() {
  using namespace strata::detail;
  static constexpr MpiApi api{init, isend, irecv, test, cancel, abandon, finalize, describe};
  return &api;
}
