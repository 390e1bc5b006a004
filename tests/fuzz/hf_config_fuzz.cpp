// A Hugging Face config.json: a model that is accepted can be built, and its config.json, written with and
// without the original as source, is read back as the same model.
#include <strata/model/hf/config.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/config/strict_json.h>

#include "fuzz.h"
#include "support/experts/tiny_experts.h"

namespace {

using nlohmann::json;

void check_config(const std::string& text) {
  const auto config = strata::decoder_from_hf_config(text);
  if (!config) {
    STRATA_ASSERT(!config.status().message().empty(), "refused without a reason");
    return;
  }
  strata::DecoderConfig full = strata::with_derived_sizes(*config);
  full.seq = 1;
  STRATA_ASSERT(strata::validate(full).is_ok(), "taken, but no model");
  full.layers = 1;  // further layers would add nothing new
  for (const strata::HfTensor& tensor : strata::hf_tensors(full))
    STRATA_ASSERT(tensor.n_elems() > 0, "a tensor without elements", tensor.name);
  const std::string written = strata::hf_config_json(*config, strata::DType::f32);
  for (const std::string& again : {written, strata::hf_config_json(*config, strata::DType::f32, text)}) {
    const auto read = strata::decoder_from_hf_config(again);
    STRATA_ASSERT(read.has_value(), "what was written is refused", read.status().to_string());
    STRATA_ASSERT(strata::hf_config_json(*read, strata::DType::f32) == written,
                  "what was written reads as another");
  }
}

// A small model of the family in which these values stand under some of its keys: no family needs seeds.
std::string with_keys_of(std::string_view family, const json& values, std::size_t first) {
  strata::DecoderConfig config = strata::decoder_for_family(family).value();
  config.layers = config.heads = 2;
  config.hidden = 16;
  config.ffn = 64;
  config.vocab = config.positions = 8;
  strata::test::set_tiny_experts(config);
  json model = json::parse(strata::hf_config_json(config, strata::DType::f32));
  for (const json& value : values)
    std::next(model.begin(), static_cast<std::ptrdiff_t>(first++ % model.size())).value() = value;
  model["model_type"] = family;
  return model.dump();
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  check_config(std::string(input));
  const auto& families = strata::decoder_families();
  if (const auto given = strata::detail::parse_strict_json(std::string(input)); given.has_value())
    check_config(with_keys_of(families[input.size() % families.size()], *given, input.size()));
}
