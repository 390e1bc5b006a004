#pragma once

#include <climits>
#include <cstddef>

// The functions of NCCL that the transport calls, by the names and types of nccl.h, which is not included:
// libnccl is loaded when a group is created, so a program runs where it is not installed, and tests replace
// it by a library of their own. A test compares what is declared here with nccl.h.
namespace strata::detail {

/// ncclResult_t.
inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
/// ncclDataType_t: the transport moves bytes, and NCCL adds nothing.
inline constexpr int kNcclInt8 = 0;

/// ncclUniqueId.
struct NcclUniqueId {
  char internal[128];
};

/// ncclConfig_t as of 2.18, and the field after it, so that nothing is padding. Newer libraries read as much
/// as `size` says.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;  ///< every call returns at once, perhaps with kNcclInProgress
  int cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
};

/// MAJOR * 10000 + MINOR * 100 + PATCH. The first one with ncclCommSplit.
inline constexpr int kOldestNccl = 21800;

/// Communicators and streams are pointers: ncclComm_t, cudaStream_t. Functions return an ncclResult_t.
struct NcclApi {
  int version = 0;  ///< the version of the loaded library
  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(NcclUniqueId* id) = nullptr;
  int (*init_rank)(void** comm, int n_ranks, NcclUniqueId id, int rank, NcclConfig* config) = nullptr;
  int (*split)(void* comm, int color, int key, void** child, NcclConfig* config) = nullptr;
  int (*finalize)(void* comm) = nullptr;
  int (*destroy)(void* comm) = nullptr;
  int (*abort)(void* comm) = nullptr;
  int (*get_async_error)(void* comm, int* state) = nullptr;
  const char* (*error_string)(int result) = nullptr;
  const char* (*last_error)(void* comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_gather)(const void* send, void* receive, std::size_t count, int type, void* comm,
                    void* stream) = nullptr;
  int (*broadcast)(const void* send, void* receive, std::size_t count, int type, int root, void* comm,
                   void* stream) = nullptr;
  int (*send)(const void* data, std::size_t count, int type, int peer, void* comm, void* stream) = nullptr;
  int (*receive)(void* data, std::size_t count, int type, int peer, void* comm, void* stream) = nullptr;
};

/// The result of a function of NCCL, and the function's name.
struct NcclOutcome {
  const char* function = "";
  int result = kNcclSuccess;
  /// A call on a non-blocking communicator that is in progress has not failed yet.
  bool is_error() const noexcept { return result != kNcclSuccess && result != kNcclInProgress; }
};

}  // namespace strata::detail
