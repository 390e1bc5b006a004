#pragma once

#include <string>

#include "load_config.h"

namespace strata::cli {

/// Settles cpu.bf16_gemm for a run on this machine's cores, and makes the products of this process so:
/// measured (once a process) where it is auto and the run may compute in bf16. The choice changes bits, so a
/// run keeps it: in its resolved configuration, and as the products in its checkpoints. Errors: `unsupported`
/// for native on a CPU without such instructions, unless a run brings it from another machine: then operands
/// are widened.
Status resolve_bf16_gemm(LoadedConfig& loaded);
/// The same for a run that goes on from a checkpoint whose products were made by `implementation`
/// (gemm_implementation()): an auto is settled as it was, not measured.
Status resolve_bf16_gemm_as(const std::string& implementation, LoadedConfig& loaded);
/// Where `loaded` was read anew in a run that had settled it as `before` has: the same again.
void carry_over_bf16_gemm(const LoadedConfig& before, LoadedConfig& loaded);
/// "bf16 by AVX512-BF16: ...", "bf16 widened to f32: ...", with why it multiplies so; empty where a run does
/// not compute in bf16 on cores.
std::string bf16_gemm_text(const LoadedConfig& loaded);

}  // namespace strata::cli
