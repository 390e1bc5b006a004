#include <strata/state_kernels/gradient.h>

#include "ops/op_defs.h"

// accumulate, which interleave_micro_batches() and derivatives emit:
//   (a part of a gradient, of any shape) -> the parameter's gradient, an f32 sum, written or added to
// accumulate_over_ranks: the same of a part of every rank, in the order of the ranks. Where it is added to,
//   all of them have the same sum before.

namespace strata {
namespace {

using namespace detail::op_rules;
using namespace detail::op_calls;

Specs infer_accumulate(In in, const Attrs&) {
  if (in[0] == nullptr || in[0]->kind != ValueKind::micro_batch_grad)
    return mismatch("the gradient of one micro-batch", in);
  return std::vector<OutputSpec>{{"grad", in[0]->shape, DType::f32}};
}
Status launch_accumulate(const OpCall& c, Backend& backend, Stream& stream) {
  return state_kernels::accumulate_async(backend, stream, {c.out[0], c.in[0], !accumulates(c, 0)});
}
/// Prepares a rank's summand before the sums of all ranks are added: rank 0 has what was summed before, and
/// the others have nothing, so that it counts once.
Status launch_own_part(const OpCall& c, Backend& backend, Stream& stream) {
  const bool first = !accumulates(c, 0) || c.attrs.as<CollectiveAttrs>().rank > 0;
  return state_kernels::accumulate_async(backend, stream, {c.out[0], c.in[0], first});
}

}  // namespace

constinit const OpDef detail::op_defs::accumulate = {
    .n_in = 1,
    .infer_outputs = infer_accumulate,
    .flops = no_flops,
    .launch = launch_accumulate,
};
constinit const OpDef detail::op_defs::accumulate_over_ranks = {
    .kind = OpKind::collective,
    .n_in = 1,
    .infer_outputs = infer_accumulate,
    .flops = no_flops,
    .launch = launch_own_part,
};

}  // namespace strata
