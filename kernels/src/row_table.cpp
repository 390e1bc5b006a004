#include "row_table.h"

#include <strata/cpuopt/isa.h>

namespace strata::kernels::detail {

const RowTable& row_table() noexcept {
#if defined(__x86_64__)
  switch (cpuopt::active_isa()) {
    case cpuopt::CpuIsa::avx512:
      return avx512::row_bodies;
    case cpuopt::CpuIsa::avx2:
      return avx2::row_bodies;
    case cpuopt::CpuIsa::sse42:
      return sse42::row_bodies;
    case cpuopt::CpuIsa::scalar:
      break;
  }
#endif
  return scalar::row_bodies;
}

}  // namespace strata::kernels::detail
