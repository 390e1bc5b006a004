#include <strata/kernels/elementwise.h>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/elementwise/launches.h"

namespace strata::kernels {
namespace {

struct Operand {
  const char* name;
  TensorView view;
};

/// An op with one or two inputs whose operands all have the dtype and number of elements of the first.
template <class Args>
Status elementwise(Backend& backend, Stream& stream, const ops::OpImpl<Args>& op, const Args& args,
                   std::initializer_list<Operand> reads, const Operand& write) {
  const TensorView& first = reads.begin()->view;
  ops::Check check(op.name, reads.begin()->name, first);
  for (const Operand& read : reads) check.elements(read.name, read.view, first.dtype, first.n_elems());
  STRATA_TRY(check.elements(write.name, write.view, first.dtype, first.n_elems()).status());
  const TensorView second = reads.size() > 1 ? reads.begin()[1].view : TensorView{};
  return ops::enqueue(backend, stream, op, args, {first, second}, {write.view});
}

}  // namespace

Status gelu_forward_async(Backend& backend, Stream& stream, const GeluForwardArgs& a) {
  constexpr ops::OpImpl<GeluForwardArgs> op = {"gelu_forward", &gelu_forward_host, &cuda::gelu_forward};
  return elementwise(backend, stream, op, a, {{"x", a.x}}, {"y", a.y});
}

Status gelu_backward_async(Backend& backend, Stream& stream, const GeluBackwardArgs& a) {
  constexpr ops::OpImpl<GeluBackwardArgs> op = {"gelu_backward", &gelu_backward_host, &cuda::gelu_backward};
  return elementwise(backend, stream, op, a, {{"x", a.x}, {"dy", a.dy}}, {"dx", a.dx});
}

Status relu_forward_async(Backend& backend, Stream& stream, const ReluForwardArgs& a) {
  constexpr ops::OpImpl<ReluForwardArgs> op = {"relu_forward", &relu_forward_host, &cuda::relu_forward};
  return elementwise(backend, stream, op, a, {{"x", a.x}}, {"y", a.y});
}

Status relu_backward_async(Backend& backend, Stream& stream, const ReluBackwardArgs& a) {
  constexpr ops::OpImpl<ReluBackwardArgs> op = {"relu_backward", &relu_backward_host, &cuda::relu_backward};
  return elementwise(backend, stream, op, a, {{"x", a.x}, {"dy", a.dy}}, {"dx", a.dx});
}

Status swiglu_forward_async(Backend& backend, Stream& stream, const SwigluForwardArgs& a) {
  const std::int64_t rows = ops::row_count(a.y);
  const std::int64_t f = ops::row_length(a.y);
  STRATA_TRY(ops::Check("swiglu_forward", "gate_up", a.gate_up)
                 .rows("gate_up", a.gate_up, rows, 2 * f)
                 .rows("y", a.y, rows, f)
                 .status());
  constexpr ops::OpImpl<SwigluForwardArgs> op = {"swiglu_forward", &swiglu_forward_host,
                                                 &cuda::swiglu_forward};
  return ops::enqueue(backend, stream, op, a, {a.gate_up}, {a.y});
}

Status swiglu_backward_async(Backend& backend, Stream& stream, const SwigluBackwardArgs& a) {
  const std::int64_t rows = ops::row_count(a.dy);
  const std::int64_t f = ops::row_length(a.dy);
  STRATA_TRY(ops::Check("swiglu_backward", "gate_up", a.gate_up)
                 .rows("gate_up", a.gate_up, rows, 2 * f)
                 .rows("dy", a.dy, rows, f)
                 .rows("dgate_up", a.dgate_up, rows, 2 * f)
                 .status());
  constexpr ops::OpImpl<SwigluBackwardArgs> op = {"swiglu_backward", &swiglu_backward_host,
                                                  &cuda::swiglu_backward};
  return ops::enqueue(backend, stream, op, a, {a.gate_up, a.dy}, {a.dgate_up});
}

Status add_async(Backend& backend, Stream& stream, const AddArgs& args) {
  constexpr ops::OpImpl<AddArgs> op = {"add", &add_host, &cuda::add};
  return elementwise(backend, stream, op, args, {{"a", args.a}, {"b", args.b}}, {"y", args.y});
}

Status scale_async(Backend& backend, Stream& stream, const ScaleArgs& a) {
  constexpr ops::OpImpl<ScaleArgs> op = {"scale", &scale_host, &cuda::scale};
  return elementwise(backend, stream, op, a, {{"x", a.x}}, {"y", a.y});
}

Status softcap_async(Backend& backend, Stream& stream, const SoftcapArgs& a) {
  STRATA_TRY(ops::Check("softcap")
                 .elements("x", a.x, DType::f32, a.x.n_elems())
                 .require(a.cap > 0, "cap is ", a.cap, "; it must be above 0")
                 .status());
  constexpr ops::OpImpl<SoftcapArgs> op = {"softcap", &softcap_host, &cuda::softcap};
  return elementwise(backend, stream, op, a, {{"x", a.x}}, {"y", a.y});
}

Status fill_async(Backend& backend, Stream& stream, const FillArgs& a) {
  STRATA_TRY(ops::Check("fill", "x", a.x).elements("x", a.x, a.x.dtype, a.x.n_elems()).status());
  constexpr ops::OpImpl<FillArgs> op = {"fill", &fill_host, &cuda::fill};
  return ops::enqueue(backend, stream, op, a, {}, {a.x});
}

}  // namespace strata::kernels
