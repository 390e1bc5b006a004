#pragma once

#include <cstdint>

namespace strata::kernels {

/// How the host computes bf16 GEMMs. All accumulate in f32, but in different orders and with different
/// intermediate roundings, so their bits differ. The bf16 instructions treat subnormal operands as zero. f16
/// is always `widened`.
enum class Bf16Gemm : std::uint8_t { widened, avx512_bf16, amx };
/// "widened to f32", "AVX512-BF16" or "AMX".
const char* to_string(Bf16Gemm gemm) noexcept;

/// The bf16 instructions of this CPU as oneDNN reports them (ONEDNN_MAX_CPU_ISA can lower them); `widened` if
/// it has none.
Bf16Gemm native_bf16_gemm() noexcept;
/// The kind of GEMM in use: native_bf16_gemm(), unless `widened` was forced.
Bf16Gemm bf16_gemm() noexcept;
inline const char* bf16_gemm_kind() noexcept { return to_string(bf16_gemm()); }

/// Makes all later bf16 GEMMs of this process convert their operands to f32, as a CPU without bf16
/// instructions does; `false` undoes it. Thread-safe, but must not be called during a step.
void force_widened_bf16_gemm(bool forced) noexcept;

/// CPU seconds of one thread for the same tiles with the native and with the widened GEMM, summed over the
/// transpositions of a linear layer's forward, input gradient and weight gradient.
struct Bf16GemmTimes {
  double native_s = 0, widened_s = 0;
  /// True only if the difference exceeds the noise of measurement. If both are about equally fast, the result
  /// is always false, so that two runs of one configuration have the same bits.
  bool widened_is_faster() const noexcept { return native_s > 1.1 * widened_s; }
};
/// Measures both GEMMs in about ten milliseconds with 4 MiB of temporary memory. CPUs differ in which one is
/// faster: on some the bf16 instructions take twice as long as f32. Returns zeros if the CPU has no bf16
/// instructions.
Bf16GemmTimes measure_bf16_gemm();

}  // namespace strata::kernels
