#pragma once

#include <cstddef>

// The functions of MPI that the transport calls. They are in a shared library of ours, libstrata_mpi.so,
// which alone links libmpi and which is loaded when a world is opened: so a program runs where MPI is not
// installed, and tests can replace MPI by a table of their own. Plain C types only: the library shares no
// code with us.
namespace strata::detail {

/// An MPI_Request, whose type depends on the implementation, or a message within the process.
struct MpiRequest {
  void* handle = nullptr;
  bool is_local = false;
};

/// The communicators: one for the data of groups, one for what the transport tells itself, and one for what
/// may come from any rank.
enum class MpiChannel : int { data, control, any };

inline constexpr int kAnyRank = -1;
inline constexpr int kMaxRanksHere = 8;

struct MpiInfo {
  /// Read by init(): the ranks of this process, of which this one has the index `here`.
  int ranks_here = 1, here = 0;
  int rank = 0, size = 0;
  int largest_tag = 0;
  char host[256] = {};
};

struct MpiReceived {
  int source = 0;
  std::size_t bytes = 0;
  bool cancelled = false;
  bool truncated = false;  ///< the message was longer than its buffer
};

/// Each function returns 0 or an error number, which describe() explains. All of them are called by the
/// thread that called init(), of which each rank of a process has one. Ranks are those of the world.
struct MpiApi {
  int (*init)(MpiInfo* info);
  int (*isend)(MpiChannel channel, const void* data, std::size_t bytes, int to, int tag, MpiRequest* request);
  /// `tag` is not looked at on the channel `any`.
  int (*irecv)(MpiChannel channel, void* data, std::size_t bytes, int from, int tag, MpiRequest* request);
  /// Sets `*done` to 1 if the request has ended, with or without an error; then it may not be used again.
  int (*test)(MpiRequest* request, int* done, MpiReceived* received);
  /// Cancels a receive, or a request within the process; test() tells when it has ended.
  int (*cancel)(MpiRequest* request);
  int (*abandon)(MpiRequest* request);  ///< it ends by itself, or never
  int (*finalize)();                    ///< ends MPI once all ranks of the process have called it
  void (*describe)(int error, char* text, std::size_t bytes);
};

/// The one symbol of the library, of type MpiEntry.
inline constexpr const char* kMpiEntryName = "strata_mpi_api";
using MpiEntry = const MpiApi* (*)();

}  // namespace strata::detail
