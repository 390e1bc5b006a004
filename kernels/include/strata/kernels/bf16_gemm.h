#pragma once

#include <cstdint>

namespace strata::kernels {

/// How the host multiplies bf16 matrices. Sums are f32 in every case, but their order and intermediate
/// roundings, hence bits, differ between them, and the instructions take a subnormal bf16 for zero. f16 is
/// always `widened`.
enum class Bf16Gemm : std::uint8_t { widened, avx512_bf16, amx };

/// What products run with: what the CPU has (as oneDNN sees it; ONEDNN_MAX_CPU_ISA lowers it), unless
/// `widened` was forced.
Bf16Gemm bf16_gemm() noexcept;
/// The same in words: "widened to f32", "AVX512-BF16" or "AMX".
const char* bf16_gemm_kind() noexcept;

/// Makes all later products of this process widen their operands to f32 first, as a CPU without bf16
/// instructions does; false undoes it. Thread-safe; not for the middle of a step.
void force_widened_bf16_gemm(bool forced) noexcept;

}  // namespace strata::kernels
