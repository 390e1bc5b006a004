#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/kernels/quantized_matrix.h>
#include <strata/model/decoder_config.h>

namespace strata {

/// The matrices of the model's blocks, which are what quantize_weights() takes: embeddings and the head are
/// not among them. Their parts are the tensors of a Hugging Face folder, and gate and up of experts.
std::vector<WeightParts> weight_parts(const DecoderConfig& config);
/// The layout of each of them in `format`, keyed by parameter.
std::map<std::string, kernels::QuantizedMatrix, std::less<>> quantized_matrices(const DecoderConfig& config,
                                                                                kernels::WeightFormat format);

}  // namespace strata
