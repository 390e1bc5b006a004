#pragma once

namespace strata::test {

/// The settings of libfake_nccl.so, through which tests control it. It implements the functions of NCCL that
/// strata uses for ranks that are threads of one process, over memory of the host. Plain C types: the library
/// shares no code with the tests.
struct FakeNccl {
  /// Runs `work(argument)` in the order of a stream; returns 0 if it is queued. To be set before all else.
  using Launch = int (*)(void* stream, void (*work)(void*), void* argument);
  void (*set_launch)(Launch launch);
  void (*set_version)(int version);
  /// How many times ncclCommGetAsyncError says ncclInProgress after each call.
  void (*set_polls)(int polls);
  /// Whether a rank that waits for one that has gone is told (ncclRemoteError), as over a network.
  void (*set_notices)(bool notices);
  /// The k-th call (from 1) that the calling thread makes from now on returns `result`; 0: none does.
  /// ncclCommGetAsyncError, which is called as often as others make it wait, is counted apart.
  void (*fail_call)(int k, int result);
  void (*fail_poll)(int k, int result);
  /// The calls of this thread since fail_call().
  int (*n_calls)();
  /// From now on, the live communicators in which the caller has this rank report the error.
  void (*set_async_error)(int rank, int result);
  /// Communicators that were neither destroyed nor aborted, and groups that the calling thread has not ended.
  int (*n_live)();
  int (*group_depth)();
};
inline constexpr const char* kFakeNcclEntry = "fake_nccl";
using FakeNcclEntry = const FakeNccl* (*)();

}  // namespace strata::test
