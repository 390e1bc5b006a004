#pragma once

#include <cstdint>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata::cpuopt {

/// Instruction sets that kernels are compiled for, in rising order on x86-64, which has all but the last;
/// AArch64 has the first and the last. `avx2` includes F16C; `avx512` is F, CD, BW, DQ, VL.
enum class CpuIsa : std::uint8_t { scalar, sse42, avx2, avx512, neon };
inline constexpr int kCpuIsas = 5;
std::string_view to_string(CpuIsa isa) noexcept;

/// The best set that this CPU and its operating system support.
CpuIsa detect_isa() noexcept;
bool is_supported(CpuIsa isa) noexcept;

/// "auto", or one by name. Errors: `invalid` for an unknown name, `unsupported` for one that this CPU lacks.
Result<CpuIsa> select_isa(std::string_view name);

/// Makes all kernels of this process run with `isa` from their next call on. Results do not depend on it
/// (contract C1), which is why one process-wide setting is sound. Thread-safe. Errors: `unsupported` if this
/// CPU lacks it.
Status use_isa(CpuIsa isa);
/// What kernels run with: the last use_isa(), else detect_isa().
CpuIsa active_isa() noexcept;

}  // namespace strata::cpuopt
