#pragma once

#include <cstddef>

// The functions of MPI that the transport calls. They are in a shared library of ours, libstrata_mpi.so,
// which alone links libmpi and which is loaded when a world is opened: so a program runs where MPI is not
// installed, and tests can replace MPI by a table of their own. Plain C types only: the library shares no
// code with us.
namespace strata::detail {

/// An MPI_Request, whose type depends on the implementation.
struct MpiRequest {
  void* handle = nullptr;
};

/// The communicators: one for the data of groups, one for what the transport tells itself.
enum class MpiChannel : int { data, control };

inline constexpr int kAnyRank = -1;

struct MpiInfo {
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
/// thread that called init(). Ranks are those of the world.
struct MpiApi {
  int (*init)(MpiInfo* info);
  int (*isend)(MpiChannel channel, const void* data, std::size_t bytes, int to, int tag, MpiRequest* request);
  int (*irecv)(MpiChannel channel, void* data, std::size_t bytes, int from, int tag, MpiRequest* request);
  /// Sets `*done` to 1 if the request has ended, with or without an error; then it may not be used again.
  int (*test)(MpiRequest* request, int* done, MpiReceived* received);
  int (*cancel)(MpiRequest* request);   ///< of a receive; test() tells when it has ended
  int (*abandon)(MpiRequest* request);  ///< it ends by itself, or never
  int (*finalize)();
  void (*describe)(int error, char* text, std::size_t bytes);
};

/// The one symbol of the library, of type MpiEntry.
inline constexpr const char* kMpiEntryName = "strata_mpi_api";
using MpiEntry = const MpiApi* (*)();

}  // namespace strata::detail
