#pragma once

#include <string>

#include <strata/runtime/status.h>

namespace strata {

struct LoadedConfig;

/// Resolves cpu.bf16_matmul for a run on this machine's CPU, and applies it to all bf16 GEMMs of this
/// process. If it is `auto` and the run may compute in bf16, the implementations are measured, once per
/// process. The choice changes bits of the results, so a run records it in its resolved configuration and its
/// checkpoints (kGemmImplementation). Errors: `unsupported` for `native` on a CPU without bf16 instructions,
/// unless it comes from the resolved configuration of a run from another machine; operands are then widened.
Status resolve_bf16_gemm(LoadedConfig& loaded);
/// Like resolve_bf16_gemm(), for a run that resumes from a checkpoint of `implementation`
/// (gemm_implementation()): an `auto` is resolved to that implementation, without a measurement.
Status resolve_bf16_gemm_as(const std::string& implementation, LoadedConfig& loaded);
/// Copies the resolution of cpu.bf16_matmul from `before` to `loaded`, a configuration loaded again in the
/// same run.
void carry_over_bf16_gemm(const LoadedConfig& before, LoadedConfig& loaded);
/// "bf16 by AVX512-BF16: ..." or "bf16 widened to f32: ...", with the reason. Empty if the run does not
/// compute in bf16 on the CPU.
std::string bf16_gemm_text(const LoadedConfig& loaded);

}  // namespace strata
