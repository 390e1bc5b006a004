#include "hf/whole/other_names.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "family/family.h"
#include "hf/text_model.h"

namespace strata::detail {
namespace {

// The keys of GLM-4.5, DeepSeek-V3 and Nemotron-H, and of Qwen3.5.
constexpr const char* kNumbersOfLayers[] = {"num_nextn_predict_layers", "mtp_num_hidden_layers"};

bool has_layers_behind(const HfFamily& family) { return family.experts >= HfExperts::deepseek_v2; }
bool has_own_names(const HfFamily& family) {
  return family.mixers == HfMixers::delta || family.mixers == HfMixers::nemotron;
}

}  // namespace

bool may_have_extra_layers(const DecoderConfig& text) {
  const HfFamily& family = family_of(text).hf;
  return has_layers_behind(family) || has_own_names(family);
}

bool is_of_extra_layer(std::string_view name, const DecoderConfig& text) {
  const HfFamily& family = family_of(text).hf;
  if (has_own_names(family) && name.starts_with("mtp.")) return true;
  if (!has_layers_behind(family) || !name.starts_with(family.names.layer)) return false;
  const std::string_view rest = name.substr(family.names.layer.size());
  std::int64_t layer = -1;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  return read.ec == std::errc() && read.ptr != rest.data() + rest.size() && *read.ptr == '.' &&
         layer >= text.layers;
}

bool is_of_others(std::string_view name, const WholeModel* whole, const DecoderConfig& text) {
  if (whole == nullptr) return is_of_extra_layer(name, text);
  return whole->is_of_others(name) || is_of_extra_layer(whole->in_text_model(name), text);
}

void set_extra_layers(nlohmann::json& config, const nlohmann::json* source) {
  for (const char* const key : kNumbersOfLayers) {
    const bool says = source != nullptr && source->contains(key);
    if (says)
      config[key] = source->at(key);
    else if (source != nullptr)
      config.erase(key);
    else if (config.contains(key))
      config[key] = 0;
  }
}

}  // namespace strata::detail
