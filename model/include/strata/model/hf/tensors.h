#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/decoder.h>

namespace strata {

/// One tensor of a Hugging Face folder: rows of one of our parameters, or all of them, in that family's
/// layout.
struct HfTensor {
  enum class Layout : std::uint8_t {
    rows,        ///< as ours
    transposed,  ///< [in, out] (GPT-2)
    by_head,     ///< rows of head 0's query, key and value, then of head 1's ... (BLOOM)
  };
  std::string name;
  std::vector<std::uint64_t> shape;
  std::string param;           ///< the parameter of record_decoder()
  std::int64_t first_row = 0;  ///< of the parameter (a vector has one row a value)
  Layout layout = Layout::rows;

  std::int64_t n_elems() const noexcept;
};

/// All tensors of a model in the order in which families store them. A tied head is not among them.
std::vector<HfTensor> hf_tensors(const DecoderConfig& config);
/// The head's own name, which a file may hold although it is tied.
std::string_view hf_head_name() noexcept;
/// Whether a file's tensor carries nothing a model learns (masks and frequency tables that old files hold).
bool is_hf_buffer(std::string_view name) noexcept;

/// Elements [begin, begin + n) of `tensor`, put where they belong in `param`, or taken from there.
void scatter_hf(const HfTensor& tensor, const DecoderConfig& config, std::int64_t begin,
                std::span<const float> from, std::span<float> param);
void gather_hf(const HfTensor& tensor, const DecoderConfig& config, std::int64_t begin,
               std::span<const float> param, std::span<float> into);

}  // namespace strata
