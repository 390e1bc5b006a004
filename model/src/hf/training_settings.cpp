#include <strata/model/hf/training_settings.h>

#include <map>
#include <string_view>

#include <strata/runtime/str.h>

#include <strata/runtime/config/strict_json.h>

namespace strata {
namespace {

// Default dropouts above 0 in the configuration classes of Hugging Face transformers.
struct Default {
  std::string_view family;
  const char* key;
  double value;
};
constexpr Default kDefaults[] = {{"gpt2", "attn_pdrop", 0.1},
                                 {"gpt2", "embd_pdrop", 0.1},
                                 {"gpt2", "resid_pdrop", 0.1},
                                 {"opt", "dropout", 0.1}};

// Recognizes a dropout by the name of its key. The dropout of a classifier head does not concern a language
// model.
bool is_dropout(std::string_view key) {
  const auto has = [&](std::string_view part) { return key.find(part) != std::string_view::npos; };
  return (has("dropout") || has("pdrop") || has("layerdrop")) && !has("classifier") && !has("summary");
}

}  // namespace

Result<std::string> ignored_training_settings(const std::string& config_json) {
  STRATA_TRY_ASSIGN(const nlohmann::json root, detail::parse_strict_json(config_json));
  if (!root.is_object()) return Status::error(Code::corrupt, "it is not an object");
  std::map<std::string, double> asked;
  const auto type = root.find("model_type");
  for (const Default& preset : kDefaults)
    if (type != root.end() && *type == preset.family) asked[preset.key] = preset.value;
  for (const auto& [key, value] : root.items())
    if (is_dropout(key) && value.is_number()) asked[key] = value.get<double>();
  std::string text;
  for (const auto& [key, value] : asked)
    if (value > 0) text += str(text.empty() ? "" : ", ", key, " = ", value);
  return text;
}

}  // namespace strata
