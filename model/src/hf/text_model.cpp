#include "hf/text_model.h"

#include "hf/config_keys.h"

namespace strata::detail {
namespace {

constexpr const char* kTextConfig = "text_config";

bool has_text_config(const nlohmann::json& root) {
  if (!root.is_object()) return false;
  const auto type = root.find("model_type"), text = root.find(kTextConfig);
  return type != root.end() && *type == "mistral3" && text != root.end() && text->is_object();
}

}  // namespace

nlohmann::json text_config_of(const nlohmann::json& root) {
  if (!has_text_config(root)) return root;
  nlohmann::json text = root.at(kTextConfig);
  text.emplace("model_type", "mistral");  // what transformers takes without the key
  for (const char* const key :
       {"tie_word_embeddings", "dtype", "torch_dtype", "quantization_config", kStackedExperts})
    if (const auto whole = root.find(key); whole != root.end()) text[key] = *whole;
  return text;
}

std::string_view text_prefix_of(const nlohmann::json& root) {
  return has_text_config(root) ? "language_model." : "";
}

bool is_of_image_reader(std::string_view tensor) {
  return tensor.starts_with("vision_tower.") || tensor.starts_with("multi_modal_projector.");
}

}  // namespace strata::detail
