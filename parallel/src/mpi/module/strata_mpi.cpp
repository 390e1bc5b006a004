// libstrata_mpi.so: the functions of mpi_api.h by calls of MPI. Errors are returned, never fatal.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>

#include "mpi/mpi_api.h"

namespace strata::detail {
namespace {

// Errors of our own, outside of MPI's range.
constexpr int kAlreadyStarted = -1, kNoThreads = -2, kTooLong = -3;

MPI_Comm communicators[2];  // NOLINT: an MPI library is global, too

MPI_Comm communicator(MpiChannel channel) { return communicators[static_cast<int>(channel)]; }

static_assert(sizeof(MPI_Request) <= sizeof(MpiRequest));
MPI_Request get(const MpiRequest& request) {
  MPI_Request handle;
  std::memcpy(&handle, &request.handle, sizeof(MPI_Request));
  return handle;
}
void set(MpiRequest& request, MPI_Request handle) {
  std::memcpy(&request.handle, &handle, sizeof(MPI_Request));
}

int open_communicators(MpiInfo* info) {
  // Of the world, too: the default handler ends the process at the first error.
  if (const int error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); error != 0) return error;
  for (MPI_Comm& made : communicators) {
    if (const int error = MPI_Comm_dup(MPI_COMM_WORLD, &made); error != 0) return error;
    if (const int error = MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN); error != 0) return error;
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &info->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &info->size);
  int* largest = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest, &found);
  info->largest_tag = found != 0 ? *largest : 32767;  // what the standard guarantees
  char host[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(host, &length);
  std::snprintf(info->host, sizeof info->host, "%s", host);
  return 0;
}

int init(MpiInfo* info) {
  int started = 0, provided = 0;
  MPI_Initialized(&started);
  if (started != 0) return kAlreadyStarted;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided); error != 0)
    return error;
  if (provided < MPI_THREAD_FUNNELED) return kNoThreads;
  return open_communicators(info);
}

int isend(MpiChannel channel, const void* data, std::size_t bytes, int to, int tag, MpiRequest* request) {
  if (bytes > INT_MAX) return kTooLong;
  MPI_Request handle = MPI_REQUEST_NULL;
  const int error =
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, communicator(channel), &handle);
  set(*request, handle);
  return error;
}

int irecv(MpiChannel channel, void* data, std::size_t bytes, int from, int tag, MpiRequest* request) {
  if (bytes > INT_MAX) return kTooLong;
  MPI_Request handle = MPI_REQUEST_NULL;
  const int source = from == kAnyRank ? MPI_ANY_SOURCE : from;
  const int error =
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source, tag, communicator(channel), &handle);
  set(*request, handle);
  return error;
}

int test(MpiRequest* request, int* done, MpiReceived* received) {
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
  *received = {status.MPI_SOURCE, static_cast<std::size_t>(std::max(bytes, 0)), cancelled != 0, false};
  return 0;
}

int cancel(MpiRequest* request) {
  MPI_Request handle = get(*request);
  return MPI_Cancel(&handle);
}

int abandon(MpiRequest* request) {
  MPI_Request handle = get(*request);
  return MPI_Request_free(&handle);
}

int finalize() { return MPI_Finalize(); }

void describe(int error, char* text, std::size_t bytes) {
  const char* own = error == kAlreadyStarted ? "this process has started MPI before; it can do so only once"
                    : error == kNoThreads    ? "this MPI does not allow a process with several threads"
                    : error == kTooLong      ? "a message is longer than MPI can count"
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
