#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <strata/kernels/recurrent/causal_conv.h>

#include "support/op_test.h"

namespace strata::test {

/// Rows of a causal convolution, in one or more sequences, and what the host makes of them.
class ConvProblem {
 public:
  ConvProblem(std::int64_t n_rows, std::int64_t n_channels, std::int64_t n_taps, DType dtype,
              std::int64_t sequences = 1)
      : rows(n_rows),
        channels(n_channels),
        taps(n_taps),
        seq(n_rows / sequences),
        x({rows, channels}, Values(1).floats(rows * channels), dtype),
        weight({channels, taps}, Values(2).floats(channels * taps), dtype),
        bias({channels}, Values(3).floats(channels), dtype),
        dy({rows, channels}, Values(4).floats(rows * channels), dtype) {}

  struct Results {
    std::vector<float> y, dx, dweight, dbias;
    std::vector<float> all() const { return joined({y, dx, dweight, dbias}); }
  };
  kernels::CausalConvForwardArgs forward_args(Tensor& y) {
    return {x.view(),
            weight.view(),
            has_bias ? bias.view() : TensorView{},
            doc_start.empty() ? TensorView{} : view(doc_start),
            y.view(),
            seq,
            silu};
  }
  Results run(int threads = 2) {
    Tensor y = Tensor::unwritten({rows, channels}, x.dtype()), dx = y,
           dweight = Tensor::unwritten({channels, taps}), dbias = Tensor::unwritten({channels});
    Workspace space(kernels::causal_conv_backward_workspace_bytes(rows, channels, taps));
    const auto workers = pool(threads);
    const kernels::CausalConvForwardArgs args = forward_args(y);
    kernels::causal_conv_forward_host(args, *workers);
    kernels::causal_conv_backward_host({.x = args.x,
                                        .weight = args.weight,
                                        .bias = args.bias,
                                        .doc_start = args.doc_start,
                                        .dy = dy.view(),
                                        .dx = dx.view(),
                                        .dweight = dweight.view(),
                                        .dbias = has_bias ? dbias.view() : TensorView{},
                                        .seq = seq,
                                        .silu = silu,
                                        .workspace = space.view()},
                                       *workers);
    return {y.values(), dx.values(), dweight.values(),
            has_bias ? dbias.values() : std::vector<float>(static_cast<std::size_t>(channels))};
  }

  struct Wanted {
    std::vector<double> y, dx, dweight, dbias;
  };
  Wanted wanted() const {
    const std::vector<double> of_x = widen(x.values()), w = widen(weight.values()), b = widen(bias.values()),
                              d = widen(dy.values());
    Wanted out{std::vector<double>(of_x.size()), std::vector<double>(of_x.size()),
               std::vector<double>(w.size()), std::vector<double>(b.size())};
    for (std::int64_t t = 0; t < rows; ++t)
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t begin = t / seq * seq + (doc_start.empty() ? 0 : doc_start[index(t)]);
        double z = has_bias ? b[index(c)] : 0;
        for (std::int64_t k = 0; k < taps; ++k)
          if (t - taps + 1 + k >= begin)
            z += w[index(c * taps + k)] * of_x[index((t - taps + 1 + k) * channels + c)];
        const double s = 1 / (1 + std::exp(-z)), slope = silu ? s + z * s * (1 - s) : 1;
        out.y[index(t * channels + c)] = silu ? z * s : z;
        const double dz = d[index(t * channels + c)] * slope;
        for (std::int64_t k = 0; k < taps; ++k)
          if (t - taps + 1 + k >= begin) {
            out.dx[index((t - taps + 1 + k) * channels + c)] += w[index(c * taps + k)] * dz;
            out.dweight[index(c * taps + k)] += of_x[index((t - taps + 1 + k) * channels + c)] * dz;
          }
        if (has_bias) out.dbias[index(c)] += dz;
      }
    return out;
  }
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  std::int64_t rows, channels, taps, seq;
  Tensor x, weight, bias, dy;
  std::vector<std::int32_t> doc_start;
  bool has_bias = true, silu = true;
};

}  // namespace strata::test
