#include <strata/model/hf/training_settings.h>

#include <map>
#include <string_view>

#include <strata/runtime/str.h>

#include "hf/config/keys.h"
#include "family/family.h"
#include "hf/config/text.h"

namespace strata {
namespace {

// Recognizes a dropout, or the noise of a router's input (Mixtral), by the name of its key. The dropout of a
// classifier head does not concern a language model.
bool is_dropout(std::string_view key) {
  const auto has = [&](std::string_view part) { return key.find(part) != std::string_view::npos; };
  return (has("dropout") || has("pdrop") || has("layerdrop") || has("jitter_noise")) && !has("classifier") &&
         !has("summary");
}

}  // namespace

Result<std::string> ignored_training_settings(const std::string& config_json) {
  STRATA_TRY_ASSIGN(const nlohmann::json root, detail::parse_config_json(config_json));
  if (!root.is_object()) return Status::error(Code::corrupt, "it is not an object");
  std::map<std::string, double> asked;
  const auto type = root.find("model_type");
  const bool is_text = type != root.end() && type->is_string();
  if (const detail::Family* const family = is_text ? detail::find_family(type->get<std::string>()) : nullptr)
    for (const char* const key : family->hf.dropouts)
      if (key != nullptr) asked[key] = 0.1;
  for (const auto& [key, value] : root.items())
    if (is_dropout(key) && value.is_number()) asked[key] = value.get<double>();
  std::string text;
  for (const auto& [key, value] : asked)
    if (value > 0) text += str(text.empty() ? "" : ", ", key, " = ", value);
  return text;
}

Result<double> router_aux_in_hf_config(const std::string& config_json) {
  STRATA_TRY_ASSIGN(const nlohmann::json root, detail::parse_config_json(config_json));
  if (!root.is_object()) return Status::error(Code::corrupt, "it is not an object");
  detail::Keys keys(root);
  const detail::Family* const family = detail::find_family(keys.text({"model_type"}, ""));
  if (family == nullptr || family->hf.router_aux == 0 || !keys.flag("output_router_logits", false))
    return 0.0;
  const double coef = keys.number({"router_aux_loss_coef"}, family->hf.router_aux);
  if (coef < 0) keys.unsupported(str("router_aux_loss_coef is ", coef, "; it must be 0 or more"));
  STRATA_TRY(keys.status());
  return coef;
}

}  // namespace strata
