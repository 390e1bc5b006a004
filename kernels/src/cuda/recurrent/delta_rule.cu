#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/recurrent/delta_rule.h>

#include "cuda/recurrent/delta_unit.h"
#include "cuda/thread_block.h"
#include "recurrent/delta_operands.h"

// A block of threads for each slot of the workspace, which takes the chunks of its pairs one after the other.
namespace strata::kernels::cuda {
namespace {

using detail::kDeltaThreads;
using Block = detail::DeltaBlock<detail::BlockThreads, dispatch::HalfWarp, false>;

template <class T>
__global__ void __launch_bounds__(kDeltaThreads) run_forward(detail::DeltaForwardOperands<T> a) {
  detail::forward_slot(Block(), a, blockIdx.x, gridDim.x);
}
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) run_backward(detail::DeltaBackwardOperands<T> a) {
  detail::backward_slot(Block(), a, blockIdx.x, gridDim.x);
}
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) run_cached(detail::DeltaCachedOperands<T> a) {
  detail::cached_slot(Block(), a, blockIdx.x, gridDim.x);
}

unsigned slots_of(std::int64_t pairs) { return static_cast<unsigned>(detail::delta_slots(pairs)); }

}  // namespace

Status delta_rule_forward(Backend&, Stream& stream, const DeltaRuleForwardArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    const auto of = detail::delta_forward_operands<T>(a);
    run_forward<<<slots_of(of.of.pairs), kDeltaThreads, 0, queue>>>(of);
  });
}
Status delta_rule_backward(Backend&, Stream& stream, const DeltaRuleBackwardArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    const auto of = detail::delta_backward_operands<T>(a);
    run_backward<<<slots_of(of.of.pairs), kDeltaThreads, 0, queue>>>(of);
  });
}
Status cached_delta_rule(Backend&, Stream& stream, const CachedDeltaRuleArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    const auto of = detail::delta_cached_operands<T>(a);
    run_cached<<<slots_of(of.of.pairs), kDeltaThreads, 0, queue>>>(of);
  });
}

}  // namespace strata::kernels::cuda
