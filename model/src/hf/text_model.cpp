#include "hf/text_model.h"

#include <algorithm>

#include <strata/runtime/str.h>

#include "hf/config/keys.h"

namespace strata::detail {
namespace {

constexpr const char* kTextConfig = "text_config";

constexpr std::string_view kIndexer = ".self_attn.indexer.";
constexpr std::string_view kLayers = "model.layers.";

constexpr WholeModel kWholeModels[] = {
    {"mistral3", "mistral", "", "language_model.", {"vision_tower.", "multi_modal_projector."}},
    // What predicts further tokens is another part, too.
    {"qwen3_5", "qwen3_5_text", "model.", "model.language_model.", {"model.visual.", "mtp."}},
    {"qwen3_5_moe", "qwen3_5_moe_text", "model.", "model.language_model.", {"model.visual.", "mtp."}},
    {.type = "kimi_k25",
     .text_type = "deepseek_v3",
     .text_names = "",
     .file_names = "language_model.",
     .others = {"vision_tower.", "mm_projector.", "model.mm_projector."},
     .saved_names = "language_model.model.blocks."},
    {.type = "deepseek_v32", .text_type = "deepseek_v3", .inside_layers = kIndexer, .is_indexed = true},
    {.type = "glm_moe_dsa", .text_type = "glm4_moe_lite", .inside_layers = kIndexer, .is_indexed = true},
    {"gemma4",
     "gemma4_text",
     "model.",
     "model.language_model.",
     {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.", "model.embed_audio."}},
};

std::string with_other_beginning(std::string_view name, std::string_view from, std::string_view to) {
  return name.starts_with(from) ? str(to, name.substr(from.size())) : std::string(name);
}

}  // namespace

std::string WholeModel::in_files(std::string_view name) const {
  return with_other_beginning(name, text_names, file_names);
}
std::string WholeModel::in_saved_files(std::string_view name) const {
  return saved_names.empty() ? in_files(name) : with_other_beginning(name, kLayers, saved_names);
}
std::string WholeModel::in_text_model(std::string_view name) const {
  if (!saved_names.empty() && name.starts_with(saved_names))
    return with_other_beginning(name, saved_names, kLayers);
  return with_other_beginning(name, file_names, text_names);
}
bool WholeModel::is_of_others(std::string_view name) const {
  if (!inside_layers.empty() && name.find(inside_layers) != std::string_view::npos) return true;
  return std::any_of(others.begin(), others.end(), [&](std::string_view beginning) {
    return !beginning.empty() && name.starts_with(beginning);
  });
}

const WholeModel* whole_model_of(const nlohmann::json& root) {
  if (!root.is_object()) return nullptr;
  const auto type = root.find("model_type"), text = root.find(kTextConfig);
  if (type == root.end()) return nullptr;
  const auto* const found =
      std::find_if(std::begin(kWholeModels), std::end(kWholeModels),
                   [&](const WholeModel& model) { return *type == std::string(model.type); });
  if (found == std::end(kWholeModels)) return nullptr;
  return found->is_indexed || (text != root.end() && text->is_object()) ? found : nullptr;
}

namespace {

/// What transformers takes for keys that are missing, where it is not what it takes in the text model.
void add_indexed_defaults(nlohmann::json& text, const WholeModel& whole) {
  if (whole.text_type == "glm4_moe_lite")
    for (const auto& [key, value] :
         {std::pair{"q_lora_rank", 2048}, std::pair{"qk_nope_head_dim", 192}, std::pair{"v_head_dim", 256}})
      text.emplace(key, value);
  text.emplace("routed_scaling_factor", 2.5);
  text.emplace("first_k_dense_replace", 3);
  text.emplace("index_topk", 2048);
}

}  // namespace

nlohmann::json text_config_of(const nlohmann::json& root) {
  const WholeModel* const whole = whole_model_of(root);
  if (whole == nullptr) {
    nlohmann::json text = root;  // Kimi K2 is DeepSeek-V3 by another name
    if (text.is_object() && text.contains("model_type") && text["model_type"] == "kimi_k2")
      text["model_type"] = "deepseek_v3";
    return text;
  }
  nlohmann::json text = whole->is_indexed ? root : root.at(kTextConfig);
  if (whole->is_indexed || (text.contains("model_type") && text["model_type"] == "kimi_k2"))
    text["model_type"] = std::string(whole->text_type);
  text.emplace("model_type", std::string(whole->text_type));
  if (whole->is_indexed) add_indexed_defaults(text, *whole);
  for (const char* const key :
       {"tie_word_embeddings", "dtype", "torch_dtype", "quantization_config", kStackedExperts})
    if (const auto of_whole = root.find(key); of_whole != root.end()) text[key] = *of_whole;
  return text;
}

}  // namespace strata::detail
