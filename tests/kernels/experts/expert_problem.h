#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <strata/kernels/experts/expert_linear.h>

#include "support/op_test.h"

namespace strata::test {

/// The linear layers of experts with given numbers of rows.
struct ExpertProblem {
  std::vector<std::int64_t> counts;  ///< rows of each expert
  std::int64_t n, k;
  DType dtype = DType::f32;
  std::uint64_t seed = 1;

  std::int64_t experts() const { return std::ssize(counts); }
  std::vector<std::int32_t> offsets() const {
    std::vector<std::int32_t> at = {0};
    for (const std::int64_t count : counts) at.push_back(at.back() + static_cast<std::int32_t>(count));
    return at;
  }
  std::int64_t rows() const { return offsets().back(); }
  kernels::ExpertShape shape(std::int64_t of_block) const { return {rows(), of_block, n, k, dtype}; }

  Tensor x() const { return {{rows(), k}, Values(seed).floats(rows() * k), dtype}; }
  Tensor dy() const { return {{rows(), n}, Values(seed + 1).floats(rows() * n), dtype}; }
  Tensor w() const { return {{experts(), n, k}, Values(seed + 2).floats(experts() * n * k), dtype}; }
  Tensor b() const { return {{experts(), n}, Values(seed + 3).floats(experts() * n), dtype}; }

  /// Experts [first, first + count) of a tensor.
  static TensorView block_of(Tensor& all, std::int64_t first, std::int64_t count) {
    TensorView view = all.view();
    const std::size_t bytes = view.bytes() / static_cast<std::size_t>(view.shape.dims[0]);
    view.data += static_cast<std::size_t>(first) * bytes;
    view.shape.dims[0] = count;
    return view;
  }
  /// Calls run(first, count) for blocks of `of_block` experts.
  template <class Run>
  void each_block(std::int64_t of_block, const Run& run) const {
    for (std::int64_t first = 0; first < experts(); first += of_block)
      run(first, std::min(of_block, experts() - first));
  }

  std::vector<float> forward(Tensor x, bool has_bias, std::int64_t of_block, int threads = 2) const {
    Tensor weights = w(), bias = b(), y = Tensor::unwritten({rows(), n}, dtype);
    std::vector<std::int32_t> at = offsets();
    const auto workers = pool(threads);
    each_block(of_block, [&](std::int64_t first, std::int64_t count) {
      Workspace space(kernels::expert_linear_forward_workspace_bytes(shape(count)));
      kernels::expert_linear_forward_host(
          {x.view(), block_of(weights, first, count), has_bias ? block_of(bias, first, count) : TensorView{},
           view(at), y.view(), first, space.view()},
          *workers);
    });
    return y.values();
  }
  std::vector<float> backward_input(Tensor dy, std::int64_t of_block, int threads = 2) const {
    Tensor weights = w(), dx = Tensor::unwritten({rows(), k}, dtype);
    std::vector<std::int32_t> at = offsets();
    const auto workers = pool(threads);
    each_block(of_block, [&](std::int64_t first, std::int64_t count) {
      Workspace space(kernels::expert_linear_backward_input_workspace_bytes(shape(count)));
      kernels::expert_linear_backward_input_host(
          {dy.view(), block_of(weights, first, count), view(at), dx.view(), first, space.view()}, *workers);
    });
    return dx.values();
  }
  /// dw, then db; added to `into` if it is given.
  std::vector<float> backward_weight(DType gradient, std::int64_t of_block, int threads = 2,
                                     bool accumulate = false) const {
    Tensor in = x(), out = dy();
    Tensor dw =
        accumulate ? Tensor({experts(), n, k}, w().values()) : Tensor::unwritten({experts(), n, k}, gradient);
    Tensor db =
        accumulate ? Tensor({experts(), n}, b().values()) : Tensor::unwritten({experts(), n}, gradient);
    std::vector<std::int32_t> at = offsets();
    const auto workers = pool(threads);
    each_block(of_block, [&](std::int64_t first, std::int64_t count) {
      kernels::expert_linear_backward_weight_host(
          {out.view(), in.view(), view(at), block_of(dw, first, count), first, accumulate}, *workers);
      kernels::expert_linear_backward_bias_host(
          {out.view(), view(at), block_of(db, first, count), first, accumulate}, *workers);
    });
    return joined({dw.values(), db.values()});
  }

  /// The rows and the expert of which formulas are computed one by one.
  template <class Each>
  void each_row(const Each& each) const {
    const std::vector<std::int32_t> at = offsets();
    for (std::size_t e = 0; e < counts.size(); ++e)
      for (std::int32_t r = at[e]; r < at[e + 1]; ++r) each(e, static_cast<std::size_t>(r));
  }
  std::vector<double> want_forward(bool has_bias) const {
    const std::vector<float> xs = x().values(), ws = w().values(), bs = b().values();
    const auto n_ = static_cast<std::size_t>(n), k_ = static_cast<std::size_t>(k);
    std::vector<double> y(static_cast<std::size_t>(rows()) * n_);
    each_row([&](std::size_t e, std::size_t r) {
      for (std::size_t j = 0; j < n_; ++j) {
        double sum = has_bias ? static_cast<double>(bs[e * n_ + j]) : 0.0;
        for (std::size_t i = 0; i < k_; ++i)
          sum += static_cast<double>(xs[r * k_ + i]) * static_cast<double>(ws[(e * n_ + j) * k_ + i]);
        y[r * n_ + j] = sum;
      }
    });
    return y;
  }
  std::vector<double> want_backward_input() const {
    const std::vector<float> ds = dy().values(), ws = w().values();
    const auto n_ = static_cast<std::size_t>(n), k_ = static_cast<std::size_t>(k);
    std::vector<double> dx(static_cast<std::size_t>(rows()) * k_);
    each_row([&](std::size_t e, std::size_t r) {
      for (std::size_t j = 0; j < n_; ++j)
        for (std::size_t i = 0; i < k_; ++i)
          dx[r * k_ + i] +=
              static_cast<double>(ds[r * n_ + j]) * static_cast<double>(ws[(e * n_ + j) * k_ + i]);
    });
    return dx;
  }
  /// dw, then db.
  std::vector<double> want_backward_weight(bool accumulate) const {
    const std::vector<float> xs = x().values(), ds = dy().values();
    const auto n_ = static_cast<std::size_t>(n), k_ = static_cast<std::size_t>(k);
    std::vector<double> dw = widen(w().values()), db = widen(b().values());
    if (!accumulate) {
      std::fill(dw.begin(), dw.end(), 0.0);
      std::fill(db.begin(), db.end(), 0.0);
    }
    each_row([&](std::size_t e, std::size_t r) {
      for (std::size_t j = 0; j < n_; ++j) {
        const auto d = static_cast<double>(ds[r * n_ + j]);
        db[e * n_ + j] += d;
        for (std::size_t i = 0; i < k_; ++i)
          dw[(e * n_ + j) * k_ + i] += d * static_cast<double>(xs[r * k_ + i]);
      }
    });
    dw.insert(dw.end(), db.begin(), db.end());
    return dw;
  }
};

}  // namespace strata::test
