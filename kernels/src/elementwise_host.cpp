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
