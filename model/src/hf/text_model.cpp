#include "hf/text_model.h"

#include <algorithm>

#include <strata/runtime/str.h>

#include "hf/config_keys.h"

namespace strata::detail {
namespace {

constexpr const char* kTextConfig = "text_config";

constexpr WholeModel kWholeModels[] = {
    {"mistral3", "mistral", "", "language_model.", {"vision_tower.", "multi_modal_projector."}},
    // What predicts further tokens is left out, too.
    {"qwen3_5", "qwen3_5_text", "model.", "model.language_model.", {"model.visual.", "mtp."}},
    {"qwen3_5_moe", "qwen3_5_moe_text", "model.", "model.language_model.", {"model.visual.", "mtp."}},
};

std::string with_other_beginning(std::string_view name, std::string_view from, std::string_view to) {
  return name.starts_with(from) ? str(to, name.substr(from.size())) : std::string(name);
}

}  // namespace

std::string WholeModel::in_files(std::string_view name) const {
  return with_other_beginning(name, text_names, file_names);
}
std::string WholeModel::in_text_model(std::string_view name) const {
  return with_other_beginning(name, file_names, text_names);
}
bool WholeModel::is_of_others(std::string_view name) const {
  return std::any_of(others.begin(), others.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
}

const WholeModel* whole_model_of(const nlohmann::json& root) {
  if (!root.is_object()) return nullptr;
  const auto type = root.find("model_type"), text = root.find(kTextConfig);
  if (type == root.end() || text == root.end() || !text->is_object()) return nullptr;
  const auto* const found =
      std::find_if(std::begin(kWholeModels), std::end(kWholeModels),
                   [&](const WholeModel& model) { return *type == std::string(model.type); });
  return found == std::end(kWholeModels) ? nullptr : found;
}

nlohmann::json text_config_of(const nlohmann::json& root) {
  const WholeModel* const whole = whole_model_of(root);
  if (whole == nullptr) return root;
  nlohmann::json text = root.at(kTextConfig);
  text.emplace("model_type", std::string(whole->text_type));
  for (const char* const key :
       {"tie_word_embeddings", "dtype", "torch_dtype", "quantization_config", kStackedExperts})
    if (const auto of_whole = root.find(key); of_whole != root.end()) text[key] = *of_whole;
  return text;
}

}  // namespace strata::detail
