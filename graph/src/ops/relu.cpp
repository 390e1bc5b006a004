#include <strata/kernels/elementwise.h>

#include "ops/op_defs.h"

// relu, relu2: (x) -> y
// relu_backward, relu2_backward: (x, dy) -> dx

namespace strata {
namespace {

using namespace detail::op_rules;

template <Op kBackward>
void vjp_relu(VjpContext& c) {
  c.emit(kBackward, {c.in(0), c.grad_output(0)}, {0});
}
template <bool kSquared>
Status launch_relu(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::relu_forward_async(backend, stream, {c.in[0], c.out[0], kSquared});
}
template <bool kSquared>
Status launch_relu_backward(const OpCall& c, Backend& backend, Stream& stream) {
  return kernels::relu_backward_async(backend, stream, {c.in[0], c.in[1], c.out[0], kSquared});
}

template <bool kSquared>
constexpr OpDef relu_def() {
  return {
      .n_in = 1,
      .infer_outputs = infer_elementwise,
      .vjp = vjp_relu < kSquared ? Op::relu2_backward : Op::relu_backward >,
      .flops = no_flops,
      .launch = launch_relu<kSquared>,
      .shard = shard_elementwise,
      .operand_columns = same_columns,
  };
}
template <bool kSquared>
constexpr OpDef relu_backward_def() {
  return {
      .n_in = 2,
      .infer_outputs = infer_elementwise_backward,
      .in_place = {.out = 0, .in = 1},
      .flops = no_flops,
      .launch = launch_relu_backward<kSquared>,
  };
}

}  // namespace

Value Builder::relu(Value x) { return op(Op::relu, {x}); }
Value Builder::relu2(Value x) { return op(Op::relu2, {x}); }

constinit const OpDef detail::op_defs::relu = relu_def<false>();
constinit const OpDef detail::op_defs::relu_backward = relu_backward_def<false>();
constinit const OpDef detail::op_defs::relu2 = relu_def<true>();
constinit const OpDef detail::op_defs::relu2_backward = relu_backward_def<true>();

}  // namespace strata
