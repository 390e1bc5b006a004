#include <strata/kernels/elementwise.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {

Status gelu_forward_async(Backend& backend, Stream& stream, const GeluForwardArgs& a) {
  const std::int64_t n = a.x.n_elems();
  STRATA_TRY(detail::Check("gelu_forward")
                 .elements("x", a.x, DType::f32, n)
                 .elements("y", a.y, DType::f32, n)
                 .status());
  constexpr detail::Op<GeluForwardArgs> op = {"gelu_forward", &gelu_forward_host, &cuda::gelu_forward};
  return detail::queue(backend, stream, op, a, {a.x}, {a.y});
}

Status gelu_backward_async(Backend& backend, Stream& stream, const GeluBackwardArgs& a) {
  const std::int64_t n = a.x.n_elems();
  STRATA_TRY(detail::Check("gelu_backward")
                 .elements("x", a.x, DType::f32, n)
                 .elements("dy", a.dy, DType::f32, n)
                 .elements("dx", a.dx, DType::f32, n)
                 .status());
  constexpr detail::Op<GeluBackwardArgs> op = {"gelu_backward", &gelu_backward_host, &cuda::gelu_backward};
  return detail::queue(backend, stream, op, a, {a.x, a.dy}, {a.dx});
}

Status relu_forward_async(Backend& backend, Stream& stream, const ReluForwardArgs& a) {
  const std::int64_t n = a.x.n_elems();
  STRATA_TRY(detail::Check("relu_forward")
                 .elements("x", a.x, DType::f32, n)
                 .elements("y", a.y, DType::f32, n)
                 .status());
  constexpr detail::Op<ReluForwardArgs> op = {"relu_forward", &relu_forward_host, &cuda::relu_forward};
  return detail::queue(backend, stream, op, a, {a.x}, {a.y});
}

Status relu_backward_async(Backend& backend, Stream& stream, const ReluBackwardArgs& a) {
  const std::int64_t n = a.x.n_elems();
  STRATA_TRY(detail::Check("relu_backward")
                 .elements("x", a.x, DType::f32, n)
                 .elements("dy", a.dy, DType::f32, n)
                 .elements("dx", a.dx, DType::f32, n)
                 .status());
  constexpr detail::Op<ReluBackwardArgs> op = {"relu_backward", &relu_backward_host, &cuda::relu_backward};
  return detail::queue(backend, stream, op, a, {a.x, a.dy}, {a.dx});
}

Status swiglu_forward_async(Backend& backend, Stream& stream, const SwigluForwardArgs& a) {
  const std::int64_t rows = detail::row_count(a.y);
  const std::int64_t f = detail::row_length(a.y);
  STRATA_TRY(detail::Check("swiglu_forward")
                 .rows("gate_up", a.gate_up, rows, 2 * f)
                 .rows("y", a.y, rows, f)
                 .status());
  constexpr detail::Op<SwigluForwardArgs> op = {"swiglu_forward", &swiglu_forward_host,
                                                &cuda::swiglu_forward};
  return detail::queue(backend, stream, op, a, {a.gate_up}, {a.y});
}

Status swiglu_backward_async(Backend& backend, Stream& stream, const SwigluBackwardArgs& a) {
  const std::int64_t rows = detail::row_count(a.dy);
  const std::int64_t f = detail::row_length(a.dy);
  STRATA_TRY(detail::Check("swiglu_backward")
                 .rows("gate_up", a.gate_up, rows, 2 * f)
                 .rows("dy", a.dy, rows, f)
                 .rows("dgate_up", a.dgate_up, rows, 2 * f)
                 .status());
  constexpr detail::Op<SwigluBackwardArgs> op = {"swiglu_backward", &swiglu_backward_host,
                                                 &cuda::swiglu_backward};
  return detail::queue(backend, stream, op, a, {a.gate_up, a.dy}, {a.dgate_up});
}

Status add_async(Backend& backend, Stream& stream, const AddArgs& args) {
  const std::int64_t n = args.a.n_elems();
  STRATA_TRY(detail::Check("add")
                 .elements("a", args.a, DType::f32, n)
                 .elements("b", args.b, DType::f32, n)
                 .elements("y", args.y, DType::f32, n)
                 .status());
  constexpr detail::Op<AddArgs> op = {"add", &add_host, &cuda::add};
  return detail::queue(backend, stream, op, args, {args.a, args.b}, {args.y});
}

Status fill_async(Backend& backend, Stream& stream, const FillArgs& a) {
  STRATA_TRY(detail::Check("fill").elements("x", a.x, DType::f32, a.x.n_elems()).status());
  constexpr detail::Op<FillArgs> op = {"fill", &fill_host, &cuda::fill};
  return detail::queue(backend, stream, op, a, {}, {a.x});
}

}  // namespace strata::kernels
