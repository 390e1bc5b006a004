#include "adapter/whole_names.h"

#include <algorithm>
#include <set>

#include <strata/runtime/str.h>

#include "adapter/module_names.h"
#include "adapter/peft_tensors.h"

namespace strata::detail {
namespace {

constexpr std::string_view kModel = "model.", kLanguageModel = "model.language_model.",
                           kOldModel = "language_model.model.", kHead = "lm_head";

using Replacement = std::pair<std::string_view, std::string_view>;

/// In names and in regular expressions of them. What a name of a whole model begins with may be left out or
/// stand for itself in a pattern, as in ".*language_model.*".
constexpr Replacement kToText[] = {{kLanguageModel, kModel},
                                   {R"(model\.language_model\.)", R"(model\.)"},
                                   {kOldModel, kModel},
                                   {R"(language_model\.model\.)", R"(model\.)"},
                                   {"language_model.lm_head", kHead},
                                   {R"(language_model\.lm_head)", kHead},
                                   {"language_model", "model"}};
constexpr Replacement kToWhole[] = {{"model.layers", "model.language_model.layers"},
                                    {R"(model\.layers)", R"(model\.language_model\.layers)"},
                                    {"model.embed_tokens", "model.language_model.embed_tokens"},
                                    {R"(model\.embed_tokens)", R"(model\.language_model\.embed_tokens)"}};

template <std::size_t n>
void replace_all(std::string& text, const Replacement (&replacements)[n]) {
  for (const auto& [from, to] : replacements)
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
}

/// Replaces parts of all names in the settings.
template <std::size_t n>
void replace_in_names(LoraSettings& settings, const Replacement (&replacements)[n]) {
  for (std::vector<std::string>* const names :
       {&settings.targets, &settings.exclude, &settings.parameters, &settings.save})
    for (std::string& name : *names) replace_all(name, replacements);
  for (TrainedTokens& tokens : settings.tokens) replace_all(tokens.module, replacements);
  for (auto& [name, rank] : settings.rank_pattern) replace_all(name, replacements);
  for (auto& [name, alpha] : settings.alpha_pattern) replace_all(name, replacements);
}

}  // namespace

std::string in_class(std::string_view name, ModuleNames names) {
  if (names == ModuleNames::text) return std::string(name);
  if (name.starts_with(kModel))
    return str(names == ModuleNames::whole ? kLanguageModel : kOldModel, name.substr(kModel.size()));
  const bool is_old_head = names == ModuleNames::old_whole && name.starts_with(kHead);
  return str(is_old_head ? "language_model." : "", name);
}

ModuleNames names_of_tensor(std::string_view tensor) {
  if (!tensor.starts_with(kPeftPrefix)) return ModuleNames::text;
  tensor.remove_prefix(kPeftPrefix.size());
  return tensor.starts_with(kLanguageModel)      ? ModuleNames::whole
         : tensor.starts_with("language_model.") ? ModuleNames::old_whole
                                                 : ModuleNames::text;
}

std::string peft_tensor_in_class(const std::string& tensor, ModuleNames names) {
  if (!tensor.starts_with(kPeftPrefix)) return tensor;
  return str(kPeftPrefix, in_class(std::string_view(tensor).substr(kPeftPrefix.size()), names));
}

LoraSettings settings_in_text_model(LoraSettings settings) {
  replace_in_names(settings, kToText);
  return settings;
}

LoraSettings settings_in_whole_model(const DecoderConfig& config, LoraSettings settings) {
  std::set<std::string> saved;
  for (const HfTensor& tensor : hf_tensors(config))
    for (const std::string& name : settings.save)
      if (has_saved_module(tensor.name, name))
        saved.insert(tensor.of_experts
                         ? name
                         : in_class(tensor.name.substr(0, tensor.name.rfind('.')), ModuleNames::whole));
  replace_in_names(settings, kToWhole);
  settings.save.assign(saved.begin(), saved.end());
  return settings;
}

std::string whole_target_pattern(const std::vector<std::string>& last_parts) {
  std::string inner;
  bool has_head = false;
  for (const std::string& part : last_parts)
    if (part == kHead)
      has_head = true;
    else
      inner += str(inner.empty() ? "" : "|", part);
  if (inner.empty()) return std::string(kHead);
  return str(has_head ? "lm_head|" : "", R"(model\.language_model\.(.*\.)?()", inner, ")");
}

}  // namespace strata::detail
