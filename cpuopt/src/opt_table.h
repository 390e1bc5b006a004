#pragma once

#include <cstdint>

#include <strata/cpuopt/math/adamw.h>

namespace strata::cpuopt::detail {

/// One body per entry; each instruction set has one table.
struct OptTable {
  void (*adamw)(const AdamWScalars<float>& s, float factor, float* p, const float* g, float* m, float* v,
                std::int64_t n);
  void (*accumulate)(float* acc, const float* g, std::int64_t n);
  void (*square_sum_leaves)(const float* x, std::int64_t n, double* leaves);
};

}  // namespace strata::cpuopt::detail

namespace strata::cpuopt::scalar {
extern const detail::OptTable opt_table;
}
namespace strata::cpuopt::sse42 {
extern const detail::OptTable opt_table;
}
namespace strata::cpuopt::avx2 {
extern const detail::OptTable opt_table;
}
namespace strata::cpuopt::avx512 {
extern const detail::OptTable opt_table;
}
