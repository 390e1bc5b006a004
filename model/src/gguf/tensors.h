#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <strata/model/decoder_config.h>
#include <strata/runtime/io/gguf/format.h>

#include "gguf/architecture.h"
#include <strata/runtime/io/gguf/layout.h>

namespace strata::detail {

/// A tensor of the file and where its values come from: rows of one of our parameters, or, with an empty
/// `param`, the table of RoPE factors.
struct GgufPart {
  GgufTensor tensor;
  std::string param;
  GgufFormat wanted = GgufFormat::f32;  ///< the mix's format, which needs rows of whole blocks
  std::int64_t first_row = 0;
  std::int64_t pairs = 0;  ///< rows of each head are reordered in pairs: half its size; 0: they are not
  float added = 0;         ///< to every value
  /// So many rows of the part come after each other in the parameter, and the next ones begin `stride` rows
  /// after them: the gates of experts, whose ups are between. 0: all do.
  std::int64_t run = 0, stride = 0;

  std::int64_t rows() const noexcept;     ///< a stack has the rows of all experts
  std::int64_t columns() const noexcept;  ///< 1 for a vector
  std::int64_t runs() const noexcept { return run == 0 ? 1 : rows() / run; }
};

/// All tensors of the file, in the order of the layers. Matrices have the formats of the mix (mix.h);
/// vectors, norms, positions, routers and biases of experts are f32, as llama.cpp computes with them.
std::vector<GgufPart> gguf_parts(const GgufArchitecture& architecture, const DecoderConfig& config,
                                 GgufMix mix);

/// Copies rows [begin, begin + into.size() / columns()) of a part from the values of its parameter.
void gather_gguf(const GgufPart& part, std::int64_t begin, std::span<const float> param,
                 std::span<float> into);

/// The divisor of each frequency of RoPE in the scaling llama3 (Grattafiori et al. 2024).
std::vector<float> llama3_factors(const RopeFrequencies& frequencies, std::int64_t rotary_dim);

}  // namespace strata::detail
