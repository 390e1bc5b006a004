// A Hugging Face config.json: a model that is accepted can be built, and its config.json, written with and
// without the original as source, is read back as the same model.
#include <strata/model/hf/config.h>
#include <strata/model/hf/tensors.h>

#include "fuzz.h"

STRATA_FUZZ_TARGET(input) {
  const std::string text(input);
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
