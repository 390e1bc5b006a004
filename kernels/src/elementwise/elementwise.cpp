#include <strata/kernels/elementwise.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "row_table.h"
#include "simd_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

/// Calls body(table, offset, n, type) for ranges of the `view.n_elems()` elements of a contiguous tensor,
/// where `type` is the C++ type of view.dtype.
template <class Body>
void dispatch_ranges(const TensorView& view, ThreadPool& pool, const Body& body) {
  detail::dispatch_dtype(view.dtype, [&]<class T>(std::type_identity<T> type) {
    const detail::SimdTable<T>& table = detail::simd_table<T>();
    dispatch::parallel_for_ranges(pool, view.n_elems(), detail::kElementsPerItem,
                                  [&](std::int64_t i, std::int64_t n) { body(table, i, n, type); });
  });
}

template <class T>
void swiglu_forward(const SwigluForwardArgs& a, ThreadPool& pool) {
  const std::int64_t f = dispatch::row_length(a.y);
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.y), detail::rows_per_item(f), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const T* gate = a.gate_up.as<T>() + t * 2 * f;
          const detail::SimdTable<T>& table = detail::simd_table<T>();
          (a.gelu ? table.geglu_forward : table.swiglu_forward)(gate, gate + f, a.y.as<T>() + t * f, f);
        }
      });
}

template <class T>
void swiglu_backward(const SwigluBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t f = dispatch::row_length(a.dy);
  dispatch::parallel_for_ranges(pool, dispatch::row_count(a.dy), detail::rows_per_item(f),
                                [&](std::int64_t first, std::int64_t n) {
                                  for (std::int64_t t = first; t < first + n; ++t) {
                                    const T* gate = a.gate_up.as<T>() + t * 2 * f;
                                    T* dgate = a.dgate_up.as<T>() + t * 2 * f;
                                    const detail::SimdTable<T>& table = detail::simd_table<T>();
                                    (a.gelu ? table.geglu_backward : table.swiglu_backward)(
                                        gate, gate + f, a.dy.as<T>() + t * f, dgate, dgate + f, f);
                                  }
                                });
}

struct Operand {
  const char* name;
  TensorView view;
};

/// An op with one or two inputs whose operands all have the dtype and number of elements of the first.
template <class Args>
Status elementwise(Backend& backend, Stream& stream, const dispatch::OpImpl<Args>& op, const Args& args,
                   std::initializer_list<Operand> reads, const Operand& write) {
  const TensorView& first = reads.begin()->view;
  dispatch::Check check(op.name, reads.begin()->name, first);
  for (const Operand& read : reads) check.elements(read.name, read.view, first.dtype, first.n_elems());
  STRATA_TRY(check.elements(write.name, write.view, first.dtype, first.n_elems()).status());
  const TensorView second = reads.size() > 1 ? reads.begin()[1].view : TensorView{};
  return dispatch::enqueue(backend, stream, op, args, {first, second}, {write.view});
}

}  // namespace

STRATA_OP(gelu_forward, GeluForwardArgs);
STRATA_OP(gelu_backward, GeluBackwardArgs);
STRATA_OP(relu_forward, ReluForwardArgs);
STRATA_OP(relu_backward, ReluBackwardArgs);
STRATA_OP(swiglu_forward, SwigluForwardArgs);
STRATA_OP(swiglu_backward, SwigluBackwardArgs);
STRATA_OP(sigmoid_gate_forward, SigmoidGateForwardArgs);
STRATA_OP(sigmoid_gate_backward, SigmoidGateBackwardArgs);
STRATA_OP(add, AddArgs);
STRATA_OP(multiply, MultiplyArgs);
STRATA_OP(scale, ScaleArgs);
STRATA_OP(softcap, SoftcapArgs);
STRATA_OP(fill, FillArgs);

void gelu_forward_host(const GeluForwardArgs& a, ThreadPool& pool) {
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.gelu_forward(a.x.as<T>() + i, a.y.as<T>() + i, n);
                  });
}

void gelu_backward_host(const GeluBackwardArgs& a, ThreadPool& pool) {
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.gelu_backward(a.x.as<T>() + i, a.dy.as<T>() + i, a.dx.as<T>() + i, n);
                  });
}

void relu_forward_host(const ReluForwardArgs& a, ThreadPool& pool) {
  dispatch_ranges(
      a.x, pool, [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
        (a.squared ? table.relu2_forward : table.relu_forward)(a.x.as<T>() + i, a.y.as<T>() + i, n);
      });
}

void relu_backward_host(const ReluBackwardArgs& a, ThreadPool& pool) {
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    (a.squared ? table.relu2_backward : table.relu_backward)(
                        a.x.as<T>() + i, a.dy.as<T>() + i, a.dx.as<T>() + i, n);
                  });
}

void swiglu_forward_host(const SwigluForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.y.dtype, [&]<class T>(std::type_identity<T>) { swiglu_forward<T>(a, pool); });
}

void swiglu_backward_host(const SwigluBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype, [&]<class T>(std::type_identity<T>) { swiglu_backward<T>(a, pool); });
}

void sigmoid_gate_forward_host(const SigmoidGateForwardArgs& a, ThreadPool& pool) {
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    (a.silu ? table.silu_gate_forward : table.sigmoid_gate_forward)(
                        a.x.as<T>() + i, a.gate.as<T>() + i, a.y.as<T>() + i, n);
                  });
}

void sigmoid_gate_backward_host(const SigmoidGateBackwardArgs& a, ThreadPool& pool) {
  dispatch_ranges(
      a.x, pool, [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
        (a.silu ? table.silu_gate_backward : table.sigmoid_gate_backward)(
            a.x.as<T>() + i, a.gate.as<T>() + i, a.dy.as<T>() + i, a.dx.as<T>() + i, a.dgate.as<T>() + i, n);
      });
}

void add_host(const AddArgs& args, ThreadPool& pool) {
  dispatch_ranges(args.a, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.add(args.a.as<T>() + i, args.b.as<T>() + i, args.y.as<T>() + i, n);
                  });
}

void multiply_host(const MultiplyArgs& args, ThreadPool& pool) {
  dispatch_ranges(args.a, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.multiply(args.a.as<T>() + i, args.b.as<T>() + i, args.y.as<T>() + i, n);
                  });
}

void scale_host(const ScaleArgs& a, ThreadPool& pool) {
  const float factor = dispatch::is_present(a.by) ? *a.by.as<float>() * a.factor : a.factor;
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.scale(a.x.as<T>() + i, a.y.as<T>() + i, factor, n);
                  });
}

void softcap_host(const SoftcapArgs& a, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, a.x.n_elems(), detail::kElementsPerItem,
                                [&](std::int64_t i, std::int64_t n) {
                                  float* y = a.y.as<float>() + i;
                                  if (a.x.data != a.y.data) std::copy_n(a.x.as<float>() + i, n, y);
                                  detail::row_table().softcap(y, 1.0f, a.cap, n);
                                });
}

void fill_host(const FillArgs& a, ThreadPool& pool) {
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto&, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    std::fill_n(a.x.as<T>() + i, n, from_f32<T>(a.value));
                  });
}

Status gelu_forward_async(Backend& backend, Stream& stream, const GeluForwardArgs& a) {
  return elementwise(backend, stream, gelu_forward_op, a, {{"x", a.x}}, {"y", a.y});
}

Status gelu_backward_async(Backend& backend, Stream& stream, const GeluBackwardArgs& a) {
  return elementwise(backend, stream, gelu_backward_op, a, {{"x", a.x}, {"dy", a.dy}}, {"dx", a.dx});
}

Status relu_forward_async(Backend& backend, Stream& stream, const ReluForwardArgs& a) {
  return elementwise(backend, stream, relu_forward_op, a, {{"x", a.x}}, {"y", a.y});
}

Status relu_backward_async(Backend& backend, Stream& stream, const ReluBackwardArgs& a) {
  return elementwise(backend, stream, relu_backward_op, a, {{"x", a.x}, {"dy", a.dy}}, {"dx", a.dx});
}

Status swiglu_forward_async(Backend& backend, Stream& stream, const SwigluForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.y);
  const std::int64_t f = dispatch::row_length(a.y);
  STRATA_TRY(dispatch::Check("swiglu_forward", "gate_up", a.gate_up)
                 .rows("gate_up", a.gate_up, rows, 2 * f)
                 .rows("y", a.y, rows, f)
                 .status());
  return dispatch::enqueue(backend, stream, swiglu_forward_op, a, {a.gate_up}, {a.y});
}

Status swiglu_backward_async(Backend& backend, Stream& stream, const SwigluBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy);
  const std::int64_t f = dispatch::row_length(a.dy);
  STRATA_TRY(dispatch::Check("swiglu_backward", "gate_up", a.gate_up)
                 .rows("gate_up", a.gate_up, rows, 2 * f)
                 .rows("dy", a.dy, rows, f)
                 .rows("dgate_up", a.dgate_up, rows, 2 * f)
                 .status());
  return dispatch::enqueue(backend, stream, swiglu_backward_op, a, {a.gate_up, a.dy}, {a.dgate_up});
}

Status sigmoid_gate_forward_async(Backend& backend, Stream& stream, const SigmoidGateForwardArgs& a) {
  return elementwise(backend, stream, sigmoid_gate_forward_op, a, {{"x", a.x}, {"gate", a.gate}}, {"y", a.y});
}

Status sigmoid_gate_backward_async(Backend& backend, Stream& stream, const SigmoidGateBackwardArgs& a) {
  const std::int64_t n = a.x.n_elems();
  STRATA_TRY(dispatch::Check("sigmoid_gate_backward", "x", a.x)
                 .elements("gate", a.gate, a.x.dtype, n)
                 .elements("dy", a.dy, a.x.dtype, n)
                 .elements("dx", a.dx, a.x.dtype, n)
                 .elements("dgate", a.dgate, a.x.dtype, n)
                 .status());
  return dispatch::enqueue(backend, stream, sigmoid_gate_backward_op, a, {a.x, a.gate, a.dy},
                           {a.dx, a.dgate});
}

Status add_async(Backend& backend, Stream& stream, const AddArgs& args) {
  return elementwise(backend, stream, add_op, args, {{"a", args.a}, {"b", args.b}}, {"y", args.y});
}

Status multiply_async(Backend& backend, Stream& stream, const MultiplyArgs& args) {
  return elementwise(backend, stream, multiply_op, args, {{"a", args.a}, {"b", args.b}}, {"y", args.y});
}

Status scale_async(Backend& backend, Stream& stream, const ScaleArgs& a) {
  if (!dispatch::is_present(a.by)) return elementwise(backend, stream, scale_op, a, {{"x", a.x}}, {"y", a.y});
  STRATA_TRY(dispatch::Check("scale", "x", a.x)
                 .elements("y", a.y, a.x.dtype, a.x.n_elems())
                 .elements("by", a.by, DType::f32, 1)
                 .status());
  return dispatch::enqueue(backend, stream, scale_op, a, {a.x, a.by}, {a.y});
}

Status softcap_async(Backend& backend, Stream& stream, const SoftcapArgs& a) {
  STRATA_TRY(dispatch::Check("softcap")
                 .elements("x", a.x, DType::f32, a.x.n_elems())
                 .require(a.cap > 0, "cap is ", a.cap, "; it must be above 0")
                 .status());
  return elementwise(backend, stream, softcap_op, a, {{"x", a.x}}, {"y", a.y});
}

Status fill_async(Backend& backend, Stream& stream, const FillArgs& a) {
  STRATA_TRY(dispatch::Check("fill", "x", a.x).elements("x", a.x, a.x.dtype, a.x.n_elems()).status());
  return dispatch::enqueue(backend, stream, fill_op, a, {}, {a.x});
}

}  // namespace strata::kernels
