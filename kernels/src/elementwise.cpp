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
