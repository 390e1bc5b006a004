#pragma once

#include <vector>

#include <strata/cpuopt/isa.h>

namespace strata::test {

/// The instruction sets that this CPU supports.
inline std::vector<cpuopt::CpuIsa> supported_isas() {
  std::vector<cpuopt::CpuIsa> out;
  for (int i = 0; i < cpuopt::kCpuIsas; ++i)
    if (cpuopt::is_supported(static_cast<cpuopt::CpuIsa>(i))) out.push_back(static_cast<cpuopt::CpuIsa>(i));
  return out;
}

/// Makes the CPU kernels use one instruction set for the lifetime of the scope.
class IsaScope {
 public:
  explicit IsaScope(cpuopt::CpuIsa isa) : before_(cpuopt::active_isa()) { must(cpuopt::use_isa(isa)); }
  ~IsaScope() { (void)cpuopt::use_isa(before_).is_ok(); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  cpuopt::CpuIsa before_;
};

}  // namespace strata::test
