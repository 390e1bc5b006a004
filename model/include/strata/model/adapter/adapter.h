#pragma once

#include <cstdint>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/adapter/adapter_settings.h>
#include <strata/model/decoder_config.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/status.h>

namespace strata {

/// The adapters as add_bottlenecks() takes them, with parameters "layers.N.attn_adapter.*" and
/// "layers.N.mlp_adapter.*".
std::vector<BottleneckModule> bottleneck_modules(const DecoderConfig& config,
                                                 const BottleneckSettings& settings);
/// Whether the adapter's change is one of the model's matrices, so that a model without adapters can have it:
/// of LoRA, unless it is one of the embedding or the head of a model that ties them, or trains tokens of one
/// of these alone. Errors: `unsupported` with the module if not; those of lora_targets() and token_targets().
Status check_can_merge(const DecoderConfig& config, const AdapterSettings& settings);
/// Whether both are the same adapter of a model: of LoRA, the same modules with the same ranks and scales.
/// Errors: those of lora_targets().
Result<bool> are_same_adapter(const DecoderConfig& config, const AdapterSettings& a,
                              const AdapterSettings& b);

/// The use of a program with an adapter. Dropout is for training alone.
enum class AdapterUse : std::uint8_t { inference, training };
/// Adds the adapter to a program of record_decoder() or record_cached_decoder(); modules that are trained
/// whole become trainable. Errors: those of lora_targets(), saved_tensors(), token_targets() and the passes;
/// `invalid` if a learned table has too few positions for the virtual tokens.
Result<Program> add_adapter(Program program, const DecoderConfig& config, const AdapterSettings& settings,
                            AdapterUse use = AdapterUse::inference);

/// The values that a folder of the adapter has, by the parameters of folder_settings(): those of `source`,
/// but the results of a prompt's encoder instead of the rows that it reads, and of PiSSA, A and A0 below each
/// other and B and -B0 side by side.
ParamSource folder_values(ParamSource source, const DecoderConfig& config, const AdapterSettings& settings);

}  // namespace strata
