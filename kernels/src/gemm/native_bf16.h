#pragma once

#include <cstdint>

#include "gemm/gemm.h"

namespace strata::kernels {
enum class Bf16Gemm : std::uint8_t;  // strata/kernels/bf16_gemm.h
}  // namespace strata::kernels

namespace strata::kernels::detail {

/// The native bf16 GEMM of this build and CPU, regardless of force_widened_bf16_gemm(); `widened` in a build
/// without oneDNN.
Bf16Gemm detect_native_bf16_gemm() noexcept;
/// Computes a GEMM of bf16 operands with the CPU's bf16 instructions, accumulating in f32; allowed only if
/// detect_native_bf16_gemm() is not `widened`. Its bits depend only on the shapes, leading dimensions and
/// flags. The first call with a shape creates a oneDNN primitive.
void gemm_native_bf16(const Gemm& gemm) noexcept;

}  // namespace strata::kernels::detail
