#pragma once

#include <cstdint>

namespace strata::kernels {

/// How the host multiplies bf16 matrices. Sums are f32 in every case, but their order and intermediate
/// roundings, hence bits, differ between them, and the instructions take a subnormal bf16 for zero. f16 is
/// always `widened`.
enum class Bf16Gemm : std::uint8_t { widened, avx512_bf16, amx };
/// "widened to f32", "AVX512-BF16" or "AMX".
const char* to_string(Bf16Gemm gemm) noexcept;

/// The instructions that this CPU has for it (as oneDNN sees it; ONEDNN_MAX_CPU_ISA lowers it); `widened`:
/// none.
Bf16Gemm native_bf16_gemm() noexcept;
/// What products run with: the CPU's own instructions, unless `widened` was forced.
Bf16Gemm bf16_gemm() noexcept;
inline const char* bf16_gemm_kind() noexcept { return to_string(bf16_gemm()); }

/// Makes all later products of this process widen their operands to f32 first, as a CPU without bf16
/// instructions does; false undoes it. Thread-safe; not for the middle of a step.
void force_widened_bf16_gemm(bool forced) noexcept;

/// CPU seconds of one thread for the same tiles each way: in none, one and the other operand transposed, as a
/// linear layer has them forward and backward.
struct Bf16GemmTimes {
  double native_s = 0, widened_s = 0;
  /// By more than two measurements differ in: what is about as fast is not left to chance, so that two runs
  /// of one configuration have the same bits.
  bool widened_is_faster() const noexcept { return native_s > 1.1 * widened_s; }
};
/// Measures it: about ten milliseconds, 4 MiB of memory for as long. CPUs differ in which is the faster: on
/// some the instructions take twice the time of f32's. Zeros where the CPU has none.
Bf16GemmTimes measure_bf16_gemm();

}  // namespace strata::kernels
