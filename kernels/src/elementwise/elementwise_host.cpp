#include <algorithm>

#include <strata/kernels/elementwise.h>
#include <strata/ops/ranges.h>
#include <strata/ops/rows.h>

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
    ops::parallel_for_ranges(pool, view.n_elems(), detail::kElementsPerItem,
                             [&](std::int64_t i, std::int64_t n) { body(table, i, n, type); });
  });
}

template <class T>
void swiglu_forward(const SwigluForwardArgs& a, ThreadPool& pool) {
  const std::int64_t f = ops::row_length(a.y);
  ops::parallel_for_ranges(
      pool, ops::row_count(a.y), detail::rows_per_item(f), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const T* gate = a.gate_up.as<T>() + t * 2 * f;
          const detail::SimdTable<T>& table = detail::simd_table<T>();
          (a.gelu ? table.geglu_forward : table.swiglu_forward)(gate, gate + f, a.y.as<T>() + t * f, f);
        }
      });
}

template <class T>
void swiglu_backward(const SwigluBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t f = ops::row_length(a.dy);
  ops::parallel_for_ranges(pool, ops::row_count(a.dy), detail::rows_per_item(f),
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

}  // namespace

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
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.relu_forward(a.x.as<T>() + i, a.y.as<T>() + i, n);
                  });
}

void relu_backward_host(const ReluBackwardArgs& a, ThreadPool& pool) {
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.relu_backward(a.x.as<T>() + i, a.dy.as<T>() + i, a.dx.as<T>() + i, n);
                  });
}

void swiglu_forward_host(const SwigluForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.y.dtype, [&]<class T>(std::type_identity<T>) { swiglu_forward<T>(a, pool); });
}

void swiglu_backward_host(const SwigluBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype, [&]<class T>(std::type_identity<T>) { swiglu_backward<T>(a, pool); });
}

void add_host(const AddArgs& args, ThreadPool& pool) {
  dispatch_ranges(args.a, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.add(args.a.as<T>() + i, args.b.as<T>() + i, args.y.as<T>() + i, n);
                  });
}

void scale_host(const ScaleArgs& a, ThreadPool& pool) {
  dispatch_ranges(a.x, pool,
                  [&]<class T>(const auto& table, std::int64_t i, std::int64_t n, std::type_identity<T>) {
                    table.scale(a.x.as<T>() + i, a.y.as<T>() + i, a.factor, n);
                  });
}

void softcap_host(const SoftcapArgs& a, ThreadPool& pool) {
  ops::parallel_for_ranges(pool, a.x.n_elems(), detail::kElementsPerItem,
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

}  // namespace strata::kernels
