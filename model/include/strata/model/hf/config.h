#pragma once

#include <string>

#include <strata/kernels/quantized_matrix.h>
#include <strata/model/decoder_config.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata {

/// Parses a Hugging Face config.json. `seq` stays 0: the run chooses the sequence length, up to `positions`,
/// which is 0 if the model sets no limit. Errors: `corrupt` for text that is no JSON, `invalid` for values of
/// a wrong type, `unsupported` for an architecture, or a setting that changes what the model computes, that
/// is not implemented; each with its key, all at once.
Result<DecoderConfig> decoder_from_hf_config(const std::string& json);

/// The same config.json with another `tie_word_embeddings`; the text itself if it is no JSON object.
std::string with_tied_head(const std::string& json, bool tied);
/// The same config.json, which also says that its folder stacks the matrices of experts: what no folder says
/// of itself, but a run's copy does.
std::string with_stacked_experts(const std::string& json);

/// How the blocks' matrices of a folder with this config.json are quantized; `full` if they are not, or if
/// the text is not that of a model that can be read.
kernels::WeightFormat quantization_in_hf_config(const std::string& json);

/// Returns the config.json of `config` in the layout of its family, with `dtype` as the dtype of the weights.
/// Other values of the model's own config.json are carried over from `source`, above all token ids, since a
/// family's defaults are those of its first model. Without `source` the token ids are null.
std::string hf_config_json(const DecoderConfig& config, DType dtype, const std::string& source = {});

}  // namespace strata
