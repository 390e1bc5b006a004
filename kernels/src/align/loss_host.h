#pragma once

#include <strata/dispatch/ranges.h>

#include "align/loss_reduction.h"
#include "cuda/emulation/thread_block.h"
#include "work_split.h"

namespace strata::kernels::detail {

// Not threaded: the work of a token is small beside that of its logits.
template <class Loss>
void compute_loss(const LossCall<Loss>& call) {
  double lanes[kLossResults<Loss>][kLossLanes];
  reduce_loss(EmulatedThreads<kLossLanes>(), call, lanes);
}

template <class Loss>
void compute_loss_gradient(const LossGradientCall<Loss>& call, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, call.items, kElementsPerItem, [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t i = first; i < first + n; ++i) store_loss_gradient(call, i);
  });
}

}  // namespace strata::kernels::detail
