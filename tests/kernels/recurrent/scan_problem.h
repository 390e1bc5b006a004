#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <strata/kernels/recurrent/state_scan.h>

#include "kernels/recurrent/delta_problem.h"

namespace strata::test {

/// Rows of the state scan, in one or more sequences, and what the host makes of them.
class ScanProblem {
 public:
  using Heads = kernels::ScanHeads;
  static constexpr Heads kHeads = {.groups = 2, .heads = 12, .state_dim = 24, .head_dim = 20};

  ScanProblem(std::int64_t n_rows, DType dtype, const Heads& of = kHeads, std::int64_t sequences = 1)
      : heads(of),
        rows(n_rows),
        xbc({n_rows, of.xbc_width()}, Values(1).floats(n_rows * of.xbc_width()), dtype),
        step({n_rows, of.heads}, Values(3).floats(n_rows * of.heads, 0.5, 0.6)),
        g({n_rows, of.heads}, decays(n_rows * of.heads)),
        d({of.heads}, Values(5).floats(of.heads)),
        dout({n_rows, of.out_width()}, Values(4).floats(n_rows * of.out_width()), dtype) {
    heads.seq = static_cast<std::int32_t>(n_rows / sequences);
  }
  /// Documents that end at these rows of the one sequence, and at its end.
  void pack(const std::vector<std::int64_t>& ends) {
    doc_start.assign(static_cast<std::size_t>(rows), 0);
    for (const std::int64_t end : ends)
      std::fill(doc_start.begin() + end, doc_start.end(), static_cast<std::int32_t>(end));
  }
  /// The rows [first, first + n) as a problem of their own.
  ScanProblem cut(std::int64_t first, std::int64_t n) const {
    ScanProblem part(n, xbc.dtype(), heads);
    part.xbc = DeltaProblem::rows_of(xbc, first, n);
    part.step = DeltaProblem::rows_of(step, first, n);
    part.g = DeltaProblem::rows_of(g, first, n);
    part.dout = DeltaProblem::rows_of(dout, first, n);
    return part;
  }

  struct Results {
    std::vector<float> out, dxbc, dstep, dg, dd, last;
    /// All but dd, which is a sum over all rows.
    std::vector<float> of_rows() const { return joined({out, dxbc, dstep, dg, last}); }
    std::vector<float> all() const { return joined({of_rows(), dd}); }
  };
  kernels::StateScanForwardArgs forward_args(Tensor& out, Workspace& space) {
    return {.xbc = xbc.view(),
            .step = step.view(),
            .g = g.view(),
            .d = d.view(),
            .doc_start = doc_start.empty() ? TensorView{} : view(doc_start),
            .out = out.view(),
            .heads = heads,
            .workspace = space.view()};
  }
  /// Calls forward(args) and backward(args).
  template <class Forward, class Backward>
  Results run_by(const Forward& forward, const Backward& backward) {
    Tensor out = Tensor::unwritten(dout_shape(), xbc.dtype()),
           last = Tensor::unwritten({rows / heads.seq, heads.heads, heads.state_dim, heads.head_dim}),
           dxbc = Tensor::unwritten({rows, heads.xbc_width()}, xbc.dtype()),
           dstep = Tensor::unwritten({rows, heads.heads}), dg = dstep, dd = Tensor::unwritten({heads.heads});
    Workspace space(kernels::state_scan_forward_workspace_bytes(rows, heads)),
        more(kernels::state_scan_backward_workspace_bytes(rows, heads));
    kernels::StateScanForwardArgs args = forward_args(out, space);
    args.last = last.view();
    forward(args);
    backward(kernels::StateScanBackwardArgs{.xbc = args.xbc,
                                            .step = args.step,
                                            .g = args.g,
                                            .d = args.d,
                                            .doc_start = args.doc_start,
                                            .dout = dout.view(),
                                            .dxbc = dxbc.view(),
                                            .dstep = dstep.view(),
                                            .dg = dg.view(),
                                            .dd = dd.view(),
                                            .heads = heads,
                                            .workspace = more.view()});
    return {out.values(), dxbc.values(), dstep.values(), dg.values(), dd.values(), last.values()};
  }
  Results run(int threads = 2) {
    const auto workers = pool(threads);
    return run_by([&](const auto& args) { kernels::state_scan_forward_host(args, *workers); },
                  [&](const auto& args) { kernels::state_scan_backward_host(args, *workers); });
  }
  reference::ScanResults wanted() const {
    std::vector<bool> begins;
    for (std::int64_t t = 0; t < rows; ++t)
      begins.push_back(t % heads.seq == (doc_start.empty() ? 0 : doc_start[static_cast<std::size_t>(t)]));
    return reference::StateScan(heads, widen(xbc.values()), widen(step.values()), widen(g.values()),
                                widen(d.values()), widen(dout.values()), begins)
        .results;
  }
  Shape dout_shape() const { return {rows, heads.out_width()}; }

  Heads heads;
  std::int64_t rows;
  Tensor xbc, step, g, d, dout;
  std::vector<std::int32_t> doc_start;

 private:
  /// Mostly slow decays, and some fast ones.
  static std::vector<float> decays(std::int64_t n) {
    std::vector<float> g = Values(2).floats(n);
    for (float& x : g) x = -0.05f * (x + 1.0f) - (x > 0.9f ? 2.0f : 0.0f);
    return g;
  }
};

}  // namespace strata::test
