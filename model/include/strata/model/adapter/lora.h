#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/adapter/adapter_settings.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/status.h>

namespace strata {

/// A module with an adapter.
struct LoraTarget {
  /// "model.layers.0.self_attn.q_proj"; of LoraSettings::parameters, the parameter.
  std::string module;
  LoraModule lora;
  HfTensor::Layout rows = HfTensor::Layout::rows;  ///< how the file orders the rows of B; never `transposed`
  bool is_parameter() const { return lora.place == LoraPlace::experts || module.ends_with(".weight"); }
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
