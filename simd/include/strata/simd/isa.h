#pragma once

#include <cstdint>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata::simd {

/// Instruction sets that SIMD kernels are compiled for, in increasing order on x86-64, which has all but
/// `neon`; AArch64 has `scalar` and `neon`. `avx2` includes F16C; `avx512` means F, CD, BW, DQ and VL.
enum class CpuIsa : std::uint8_t { scalar, sse42, avx2, avx512, neon };
inline constexpr int kCpuIsas = 5;
std::string_view to_string(CpuIsa isa) noexcept;

/// The best set that this CPU and its operating system support.
CpuIsa detect_isa() noexcept;
bool is_supported(CpuIsa isa) noexcept;

/// Parses an instruction set's name, or "auto" for detect_isa(). Errors: `invalid` for an unknown name,
/// `unsupported` for a set that this CPU lacks.
Result<CpuIsa> select_isa(std::string_view name);

/// Makes all SIMD kernels of this process use `isa` from their next call on. Results do not depend on the
/// instruction set (contract C1), so one process-wide setting is safe. Thread-safe. Errors: `unsupported` if
/// this CPU lacks the set.
Status use_isa(CpuIsa isa);
/// The instruction set that kernels use: that of the last use_isa(), otherwise detect_isa().
CpuIsa active_isa() noexcept;

}  // namespace strata::simd
