#include <algorithm>

#include <strata/kernels/elementwise.h>

#include "op.h"
#include "row_table.h"

namespace strata::kernels {

void gelu_forward_host(const GeluForwardArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.x.n_elems(), detail::kElementsPerItem, [&](std::int64_t i, std::int64_t n) {
    detail::row_table().gelu_forward(a.x.as<float>() + i, a.y.as<float>() + i, n);
  });
}

void gelu_backward_host(const GeluBackwardArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.x.n_elems(), detail::kElementsPerItem, [&](std::int64_t i, std::int64_t n) {
    detail::row_table().gelu_backward(a.x.as<float>() + i, a.dy.as<float>() + i, a.dx.as<float>() + i, n);
  });
}

void relu_forward_host(const ReluForwardArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.x.n_elems(), detail::kElementsPerItem, [&](std::int64_t i, std::int64_t n) {
    detail::row_table().relu_forward(a.x.as<float>() + i, a.y.as<float>() + i, n);
  });
}

void relu_backward_host(const ReluBackwardArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.x.n_elems(), detail::kElementsPerItem, [&](std::int64_t i, std::int64_t n) {
    detail::row_table().relu_backward(a.x.as<float>() + i, a.dy.as<float>() + i, a.dx.as<float>() + i, n);
  });
}

void swiglu_forward_host(const SwigluForwardArgs& a, ThreadPool& pool) {
  const std::int64_t f = detail::row_length(a.y);
  detail::for_runs(pool, detail::row_count(a.y), detail::rows_per_item(f),
                   [&](std::int64_t first, std::int64_t n) {
                     for (std::int64_t t = first; t < first + n; ++t) {
                       const float* gate = a.gate_up.as<float>() + t * 2 * f;
                       detail::row_table().swiglu_forward(gate, gate + f, a.y.as<float>() + t * f, f);
                     }
                   });
}

void swiglu_backward_host(const SwigluBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t f = detail::row_length(a.dy);
  detail::for_runs(
      pool, detail::row_count(a.dy), detail::rows_per_item(f), [&](std::int64_t first, std::int64_t n) {
        for (std::int64_t t = first; t < first + n; ++t) {
          const float* gate = a.gate_up.as<float>() + t * 2 * f;
          float* dgate = a.dgate_up.as<float>() + t * 2 * f;
          detail::row_table().swiglu_backward(gate, gate + f, a.dy.as<float>() + t * f, dgate, dgate + f, f);
        }
      });
}

void add_host(const AddArgs& args, ThreadPool& pool) {
  detail::for_runs(pool, args.a.n_elems(), detail::kElementsPerItem, [&](std::int64_t i, std::int64_t n) {
    detail::row_table().add(args.a.as<float>() + i, args.b.as<float>() + i, args.y.as<float>() + i, n);
  });
}

void fill_host(const FillArgs& a, ThreadPool& pool) {
  detail::for_runs(pool, a.x.n_elems(), detail::kElementsPerItem,
                   [&](std::int64_t i, std::int64_t n) { std::fill_n(a.x.as<float>() + i, n, a.value); });
}

}  // namespace strata::kernels
