#pragma once

#include <vector>

#include <strata/simd/isa.h>

namespace strata::test {

/// The instruction sets that this CPU supports.
inline std::vector<simd::CpuIsa> supported_isas() {
  std::vector<simd::CpuIsa> out;
  for (int i = 0; i < simd::kCpuIsas; ++i)
    if (simd::is_supported(static_cast<simd::CpuIsa>(i))) out.push_back(static_cast<simd::CpuIsa>(i));
  return out;
}

/// Makes the CPU kernels use one instruction set for the lifetime of the scope.
class IsaScope {
 public:
  explicit IsaScope(simd::CpuIsa isa) : before_(simd::active_isa()) { must(simd::use_isa(isa)); }
  ~IsaScope() { (void)simd::use_isa(before_).is_ok(); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  simd::CpuIsa before_;
};

}  // namespace strata::test
