#pragma once

/// The threads of a block on the host, for tests of kernel code that is a template over a ThreadBlock
/// (thread_block.h).
namespace strata::kernels::detail {

/// Runs one thread after the other. `kReversed`: the last thread runs first, because results must not depend
/// on the order of threads.
template <int kThreads, bool kReversed = false>
struct EmulatedThreads {
  template <class F>
  void run_and_sync(const F& f) const {
    for (int i = 0; i < kThreads; ++i) f(kReversed ? kThreads - 1 - i : i);
  }
};

}  // namespace strata::kernels::detail
