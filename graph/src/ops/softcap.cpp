#include <strata/kernels/elementwise.h>

#include <strata/runtime/str.h>

#include "ops/op_defs.h"

// softcap: (x f32) -> y = cap tanh(x / cap); for logits of inference only, as it has no derivative

namespace strata {
namespace {

using namespace detail::op_rules;

Specs infer_softcap(In in, const Attrs& attrs) {
  const float cap = attrs.as<SoftcapAttrs>().cap;
  if (in[0] == nullptr || in[0]->dtype != DType::f32 || !(cap > 0))
    return mismatch(str("x f32 and a cap above 0, not ", cap), in);
  return std::vector<OutputSpec>{{"y", in[0]->shape}};
}
Status launch_softcap(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::softcap_async(backend, stream, {c.in[0], c.out[0], c.attrs.as<SoftcapAttrs>().cap});
}

}  // namespace

Value Builder::softcap(Value x, float cap) { return op(Op::softcap, {x}, SoftcapAttrs{.cap = cap}); }

constinit const OpDef detail::op_defs::softcap = {
    .n_in = 1,
    .infer_outputs = infer_softcap,
    .in_place = {.out = 0, .in = 0},
    .flops = per_element,
    .launch = launch_softcap,
};

}  // namespace strata
