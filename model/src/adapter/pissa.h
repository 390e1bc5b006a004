#pragma once

#include <strata/model/adapter/lora.h>
#include <strata/model/hf/folder.h>

// The form without PiSSA of what it has trained: see folder_settings().
namespace strata::detail {

/// LoRA of twice the ranks, with the same scales.
LoraSettings converted_pissa(const LoraSettings& settings);
/// The values of its parameters from those of `settings`, which lora_targets() accepts.
ParamSource converted_pissa_values(ParamSource source, const DecoderConfig& config,
                                   const LoraSettings& settings);

}  // namespace strata::detail
