#pragma once

#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/decoder_config.h>

namespace strata {

/// The matrices of the model's blocks, which are what quantize_weights() takes: embeddings and the head are
/// not among them. Their parts are the tensors of a Hugging Face folder.
std::vector<WeightParts> weight_parts(const DecoderConfig& config);

}  // namespace strata
