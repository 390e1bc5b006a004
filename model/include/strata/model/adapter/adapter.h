#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/adapter/lora.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/status.h>

namespace strata {

/// Bottleneck adapters of every block (passes.h): in series after the output projections of attention and MLP
/// (Houlsby et al. 2019, arXiv 1902.00751) or of the MLP alone (Pfeiffer et al. 2020, arXiv 2005.00247), or
/// in parallel to the MLP, whose operand they read (He et al. 2021, arXiv 2110.04366).
struct BottleneckSettings {
  enum class Placement : std::uint8_t { attention_mlp, mlp, parallel } placement = Placement::attention_mlp;
  std::int64_t width = 64;
  bool gelu = false;  ///< GELU (tanh approximation) instead of ReLU
  double scale = 1;
  friend bool operator==(const BottleneckSettings&, const BottleneckSettings&) = default;
};
/// Embeddings of virtual tokens before each sequence; see add_prompt().
struct PromptSettings {
  std::int64_t tokens = 20;
  friend bool operator==(const PromptSettings&, const PromptSettings&) = default;
};
/// The same, from an encoder.
struct PTuningSettings {
  std::int64_t tokens = 20;
  std::int64_t encoder_width = 128;
  friend bool operator==(const PTuningSettings&, const PTuningSettings&) = default;
};
/// Keys and values of virtual tokens in every layer; see add_prefix().
struct PrefixSettings {
  std::int64_t tokens = 20;
  friend bool operator==(const PrefixSettings&, const PrefixSettings&) = default;
};

/// One method of adapting a model, with its settings.
using AdapterSettings =
    std::variant<LoraSettings, BottleneckSettings, PromptSettings, PTuningSettings, PrefixSettings>;

/// The adapters as add_bottlenecks() takes them, with parameters "layers.N.attn_adapter.*" and
/// "layers.N.mlp_adapter.*".
std::vector<BottleneckModule> bottleneck_modules(const DecoderConfig& config,
                                                 const BottleneckSettings& settings);
/// Virtual tokens before each sequence; 0 for methods without.
std::int64_t virtual_tokens(const AdapterSettings& settings) noexcept;
/// Whether the adapter's change is one of the model's matrices, so that a model without adapters can have it:
/// of LoRA, unless it is one of the embedding or the head of a model that ties them, or trains tokens of one
/// of these alone. Errors: `unsupported` with the module if not; those of lora_targets() and token_targets().
Status check_can_merge(const DecoderConfig& config, const AdapterSettings& settings);
/// "series adapters of width 64 after attention and MLP", for people.
std::string describe(const AdapterSettings& settings);
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

/// The settings of the folder that the adapter is exported to: of PiSSA, LoRA of twice the ranks with the
/// same scales, which is s (B A - B0 A0) = s [B, -B0] [A; A0], as PEFT converts it; else `settings`.
AdapterSettings folder_settings(const AdapterSettings& settings);
/// The values that a folder of the adapter has, by the parameters of folder_settings(): those of `source`,
/// but the results of a prompt's encoder instead of the rows that it reads, and of PiSSA, A and A0 below each
/// other and B and -B0 side by side.
ParamSource folder_values(ParamSource source, const DecoderConfig& config, const AdapterSettings& settings);

}  // namespace strata
