#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <strata/kernels/recurrent/delta_rule.h>

#include "support/op_test.h"
#include "support/reference/recurrent.h"

namespace strata::test {

/// Rows of the gated delta rule, in one or more sequences, and what the host makes of them.
class DeltaProblem {
 public:
  using Heads = kernels::DeltaHeads;
  static constexpr Heads kHeads = {.key_heads = 2, .value_heads = 4, .key_dim = 24, .value_dim = 40};

  DeltaProblem(std::int64_t n_rows, DType dtype, const Heads& of = kHeads, std::int64_t sequences = 1)
      : heads(of),
        rows(n_rows),
        qkv({n_rows, of.qkv_width()}, Values(1).floats(n_rows * of.qkv_width()), dtype),
        g({n_rows, of.value_heads}, decays(n_rows * of.value_heads)),
        beta({n_rows, of.value_heads}, Values(3).floats(n_rows * of.value_heads, 0.5, 0.5)),
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
  DeltaProblem cut(std::int64_t first, std::int64_t n) const {
    DeltaProblem part(n, qkv.dtype(), heads);
    part.qkv = rows_of(qkv, first, n);
    part.g = rows_of(g, first, n);
    part.beta = rows_of(beta, first, n);
    part.dout = rows_of(dout, first, n);
    return part;
  }
  static Tensor rows_of(const Tensor& from, std::int64_t first, std::int64_t n) {
    Tensor whole = from;
    Shape shape = whole.view().shape;
    const std::int64_t width = shape.dims[1];
    const std::vector<float> values = from.values();
    shape.dims[0] = n;
    return Tensor(shape, {values.begin() + first * width, values.begin() + (first + n) * width},
                  from.dtype());
  }

  struct Results {
    std::vector<float> out, dqkv, dg, dbeta, last;
    std::vector<float> all() const { return joined({out, dqkv, dg, dbeta, last}); }
  };
  kernels::DeltaRuleForwardArgs forward_args(Tensor& out, Workspace& space) {
    return {.qkv = qkv.view(),
            .g = g.view(),
            .beta = beta.view(),
            .doc_start = doc_start.empty() ? TensorView{} : view(doc_start),
            .out = out.view(),
            .heads = heads,
            .workspace = space.view()};
  }
  Results run(int threads = 2) {
    const auto workers = pool(threads);
    Tensor out = Tensor::unwritten(dout_shape(), qkv.dtype()),
           last = Tensor::unwritten({rows / heads.seq, heads.value_heads, heads.key_dim, heads.value_dim}),
           dqkv = Tensor::unwritten({rows, heads.qkv_width()}, qkv.dtype()),
           dg = Tensor::unwritten({rows, heads.value_heads}), dbeta = dg;
    Workspace space(kernels::delta_rule_forward_workspace_bytes(rows, heads)),
        more(kernels::delta_rule_backward_workspace_bytes(rows, heads));
    kernels::DeltaRuleForwardArgs args = forward_args(out, space);
    args.last = last.view();
    kernels::delta_rule_forward_host(args, *workers);
    kernels::delta_rule_backward_host({args.qkv, args.g, args.beta, args.doc_start, dout.view(), dqkv.view(),
                                       dg.view(), dbeta.view(), heads, more.view()},
                                      *workers);
    return {out.values(), dqkv.values(), dg.values(), dbeta.values(), last.values()};
  }
  reference::DeltaResults wanted() const {
    std::vector<bool> begins;
    for (std::int64_t t = 0; t < rows; ++t)
      begins.push_back(t % heads.seq == (doc_start.empty() ? 0 : doc_start[static_cast<std::size_t>(t)]));
    return reference::DeltaRule(heads, widen(qkv.values()), widen(g.values()), widen(beta.values()),
                                widen(dout.values()), begins)
        .results;
  }
  Shape dout_shape() const { return {rows, heads.out_width()}; }

  Heads heads;
  std::int64_t rows;
  Tensor qkv, g, beta, dout;
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
