// Which format each matrix of a file has.
#pragma once

#include <string_view>

#include <strata/model/decoder_config.h>
#include <strata/runtime/io/gguf/format.h>

#include <strata/runtime/io/gguf/layout.h>

#include "family/family.h"

namespace strata::detail {

/// The mix of a file, and the other facts that decide the formats of its matrices.
struct GgufMixOf {
  GgufMix mix = GgufMix::f32;
  std::int64_t layers = 0;
  bool is_70b = false;   ///< llama.cpp takes it for a model whose few values per layer deserve more bits
  bool has_head = true;  ///< the file has output.weight
  std::int64_t experts = 0;
};
GgufMixOf gguf_mix_of(GgufMix mix, const GgufArchitecture& architecture, const DecoderConfig& config,
                      bool has_head);

/// The format that llama.cpp's quantizer (llama-quant.cpp) gives a matrix of this name.
GgufFormat gguf_matrix_format(const GgufMixOf& of, const GgufTensor& tensor);
/// That format, or the one that it falls back to if rows are not whole blocks.
GgufFormat gguf_fitting_format(GgufFormat format, std::uint64_t columns);

}  // namespace strata::detail
