#include "hf/whole/whole_config.h"

#include <strata/model/hf/config.h>
#include <strata/runtime/str.h>

#include "hf/config/keys.h"
#include "hf/config/text.h"
#include "hf/text_model.h"

namespace strata::detail {
namespace {

constexpr const char* kTied = "tie_word_embeddings";

// The keys of the text model's own config.json that are other than those of `source`'s text model.
nlohmann::json changed_keys(const DecoderConfig& config, DType dtype, const std::string& source) {
  nlohmann::json keys = nlohmann::json::parse(hf_config_json(config, dtype, source));
  nlohmann::json plain = parse_config_json(source).value();  // a form of its values is no other text model
  plain.erase("quantization_config");
  if (const auto text = plain.find("text_config"); text != plain.end() && text->is_object())
    text->erase("quantization_config");
  const auto before = decoder_from_hf_config(plain.dump());
  if (!before.has_value()) return keys;
  const nlohmann::json old = nlohmann::json::parse(hf_config_json(*before, dtype, source));
  for (const auto& [key, value] : old.items())
    if (const auto at = keys.find(key); at != keys.end() && *at == value) keys.erase(at);
  return keys;
}

}  // namespace

std::string whole_config_json(const DecoderConfig& config, DType dtype, const std::string& source) {
  nlohmann::json root = parse_config_json(source).value();  // it has been read before
  const WholeModel* const whole = whole_model_of(root);
  nlohmann::json& text = whole != nullptr && whole->is_indexed ? root : root["text_config"];
  text.update(changed_keys(config, dtype, source));
  const std::string name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  const bool is_named = root.contains("dtype") || root.contains("torch_dtype");
  if (!is_named) root["dtype"] = name;
  for (nlohmann::json* const part : {&root, &text}) {
    part->erase("quantization_config");  // the exported values are not quantized
    part->erase(kStackedExperts);
    for (const char* const key : {"dtype", "torch_dtype"})
      if (part->contains(key)) (*part)[key] = name;
  }
  root[kTied] = config.tied_head;  // the default of transformers differs between kinds
  if (text.contains(kTied)) text[kTied] = config.tied_head;
  return root.dump(2) + "\n";
}

}  // namespace strata::detail
