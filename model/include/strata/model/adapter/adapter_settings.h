#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <strata/kernels/subspace_method.h>

// What a run says of its adapter. Plain values: what they do to a program is in lora.h and adapter.h.

namespace strata {

/// Tokens of which the rows of a module's matrix are trained (PEFT's trainable_token_indices).
struct TrainedTokens {
  std::string module;  ///< an end of the name of the token embedding or of the head; empty: the embedding
  std::vector<std::int64_t> ids = {};
  friend bool operator==(const TrainedTokens&, const TrainedTokens&) = default;
};

/// Low-rank adapters of a model (LoRA; Hu et al. 2021, arXiv 2106.09685) in the terms of PEFT's LoraConfig.
/// Module names are those of the Hugging Face model.
struct LoraSettings {
  static constexpr const char* kAllLinear = "all-linear";
  static constexpr char kAtLayer = '@';
  static constexpr std::int64_t kLargestRank = 1 << 16;

  std::int64_t rank = 8;
  double alpha = 8;     ///< B A is scaled by alpha / rank,
  bool rslora = false;  ///< or by alpha / sqrt(rank) (Kalajdzievski 2023, arXiv 2312.03732)
  bool dora = false;    ///< norms of the adapted rows are trained, too (Liu et al. 2024, arXiv 2402.09353)
  /// A and B start as the principal part of the adapted rows, found in this way (PiSSA; Meng et al. 2024,
  /// arXiv 2404.02948); if not set, B starts as zero. See add_lora() and folder_settings().
  std::optional<kernels::SvdMethod> pissa = {};
  /// Whole names ("model.layers.0.self_attn.q_proj"), their last parts ("q_proj"), regular expressions that
  /// match whole names (PEFT's target_modules as a string), or `all-linear`: every matrix of the blocks,
  /// without the token embedding and the head, which are named like the others. "q_proj@3": of layer 3 alone.
  /// Empty: queries and values, or all three where the family stores them as one; nothing if there are
  /// `parameters`.
  std::vector<std::string> targets = {};
  /// Matrices of experts with adapters, one for each expert, and of routers ("gate.weight"), by whole names
  /// ("model.layers.0.mlp.experts.down_proj") or ends of them ("experts.down_proj"): PEFT's
  /// target_parameters, which neither layers nor `exclude` limit.
  std::vector<std::string> parameters = {};
  std::vector<std::string> exclude = {};  ///< modules without an adapter, by such names (exclude_modules)
  /// Layers with adapters, of targets that are no whole names (layers_to_transform); empty: all.
  std::vector<std::int64_t> layers = {};
  /// Ranks of modules, by names or regular expressions of their last parts, the first of which that matches
  /// counts; "^NAME" is a whole name.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  /// Modules that are trained whole beside the adapters, by ends of their names (modules_to_save).
  std::vector<std::string> save = {};
  /// Tokens that are trained beside the adapters. A head that is tied to the embedding has the same rows,
  /// unless it is named with other tokens, or alone: then it has rows of its own.
  std::vector<TrainedTokens> tokens = {};
  enum class Bias : std::uint8_t { none, all, lora_only } bias = Bias::none;  ///< biases that are trained
  static constexpr std::array<const char*, 3> kBiasNames = {"none", "all",
                                                            "lora_only"};  ///< as PEFT has them
  static std::optional<Bias> bias_named(std::string_view name) noexcept {
    const auto found = std::find(kBiasNames.begin(), kBiasNames.end(), name);
    if (found == kBiasNames.end()) return std::nullopt;
    return static_cast<Bias>(found - kBiasNames.begin());
  }
  const char* bias_name() const noexcept { return kBiasNames.at(static_cast<std::size_t>(bias)); }
  double dropout = 0;  ///< the dropout of A's input in training; see add_lora()
  friend bool operator==(const LoraSettings&, const LoraSettings&) = default;
};

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
/// Virtual tokens before each sequence; 0 for methods without.
std::int64_t virtual_tokens(const AdapterSettings& settings) noexcept;
/// "series adapters of width 64 after attention and MLP", for people.
std::string describe(const AdapterSettings& settings);
/// The settings of the folder that the adapter is exported to: of PiSSA, LoRA of twice the ranks with the
/// same scales, which is s (B A - B0 A0) = s [B, -B0] [A; A0], as PEFT converts it; else `settings`.
AdapterSettings folder_settings(const AdapterSettings& settings);

}  // namespace strata
