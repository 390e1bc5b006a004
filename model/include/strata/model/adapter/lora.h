#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/status.h>

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
  /// Empty: queries and values, or all three where the family stores them as one.
  std::vector<std::string> targets = {};
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

/// A module with an adapter.
struct LoraTarget {
  std::string module;  ///< "model.layers.0.self_attn.q_proj"
  LoraModule lora;
  HfTensor::Layout rows = HfTensor::Layout::rows;  ///< how the file orders the rows of B; never `transposed`
  friend bool operator==(const LoraTarget&, const LoraTarget&) = default;
};

/// The modules that the settings choose, in the order of the model. Errors: `invalid`, all problems at once:
/// a target, exclusion, layer or pattern that names no module, or one that cannot have an adapter, or no
/// regular expression that strata has; no module left; a rank of 0, or with PiSSA above half of the matrix,
/// as the exported adapter has twice the rank; PiSSA with DoRA, or with rsLoRA and patterns, for which PEFT
/// has no such form. `section`: of the configuration, with which the message begins.
Result<std::vector<LoraTarget>> lora_targets(const DecoderConfig& config, const LoraSettings& settings,
                                             std::string_view section = "adapter");
/// The tensors that are trained whole beside the adapters, as LoraSettings::save and LoraSettings::bias
/// choose it. Errors: those of lora_targets(); `invalid` for a name that no module ends with, for what shares
/// a parameter with something that is not trained, such as a part of a fused matrix or a tied head, and for a
/// regular expression.
Result<std::vector<HfTensor>> saved_tensors(const DecoderConfig& config, const LoraSettings& settings,
                                            std::string_view section = "adapter");
/// A module of which the rows of some tokens are trained.
struct TokenTarget {
  std::string module;  ///< "model.embed_tokens"
  TokenRows rows;
  std::int64_t columns = 0;  ///< columns of its matrix
  friend bool operator==(const TokenTarget&, const TokenTarget&) = default;
};
/// The rows of the tokens that LoraSettings::tokens names, as add_token_rows() takes them. Errors: those of
/// lora_targets(); `invalid`, all problems at once: a name that is neither the token embedding's nor the
/// head's alone, no token, one outside the vocabulary or named twice, and a module that has an adapter or is
/// trained whole.
Result<std::vector<TokenTarget>> token_targets(const DecoderConfig& config, const LoraSettings& settings,
                                               std::string_view section = "adapter");
/// Puts rows [n, columns] in the place of those of a matrix.
void replace_token_rows(const TokenRows& of, std::int64_t columns, std::span<const float> rows,
                        std::span<float> matrix);
/// The settings without targets, layers and patterns that name no module of the model, which PEFT ignores as
/// long as there is another one.
LoraSettings without_absent(const DecoderConfig& config, LoraSettings settings);
/// The groups of the targets' modules, as add_lora() takes them.
std::vector<LoraGroup> lora_groups(const std::vector<LoraTarget>& targets);
/// The columns of each matrix, by parameter.
std::map<std::string, std::int64_t> inner_extents(const DecoderConfig& config);
/// Adds s B A of each part to `weight`, f32 [rows, inner]; with DoRA, each of its rows then gets the norm
/// that `magnitude` has for it, or stays zero. Sums are f64 and rounded once.
void merge_lora(const LoraGroup& group, std::int64_t inner, std::span<const float> a,
                std::span<const float> b, std::span<float> weight, std::span<const float> magnitude = {});

/// Adds s B a to each row of a table [rows, columns], where a is the row of `a`, [rows, rank]. As
/// merge_lora().
void merge_lora_table(const LoraGroup& group, std::int64_t columns, std::span<const float> a,
                      std::span<const float> b, std::span<float> table);

}  // namespace strata
