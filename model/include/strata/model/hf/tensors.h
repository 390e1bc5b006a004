#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/decoder_config.h>

namespace strata {

/// One tensor of a Hugging Face folder: some or all rows of one of our parameters, in that family's layout.
struct HfTensor {
  enum class Layout : std::uint8_t {
    rows,        ///< same as ours, [out, in]
    transposed,  ///< [in, out] (GPT-2)
    by_head,     ///< query, key and value rows of head 0, then of head 1 ... (BLOOM)
    /// The same of gated delta nets: query, key, value and gate rows of a key head and its value heads, or
    /// those of what decides how a state is written and how it decays (Qwen3-Next).
    delta_by_head,
    delta_gates_by_head,
    stack_transposed,  ///< [experts, in, out] (gpt-oss)
    stack_in_turn,     ///< the same or, of biases, [experts, out], with the rows of gates and ups in turn
  };
  std::string name;
  std::vector<std::uint64_t> shape;
  std::string param;           ///< the parameter of record_decoder()
  std::int64_t first_row = 0;  ///< first row of the parameter (in a vector each value is a row)
  Layout layout = Layout::rows;
  /// Whether, if it is a matrix of a layer, it is that of a linear layer, which may have an adapter or be
  /// quantized. Those of experts and of their routers are not.
  bool is_linear = true;
  /// Whether it is a matrix of an expert, or those of all experts of a layer.
  bool of_experts = false;
  bool is_f32 = false;  ///< it is f32 in files of every dtype

  std::int64_t n_elems() const noexcept;
};

/// Whether the rows of a parameter are in another order than in the file, by heads.
constexpr bool is_by_head(HfTensor::Layout layout) noexcept {
  return layout >= HfTensor::Layout::by_head && layout <= HfTensor::Layout::delta_gates_by_head;
}
/// All tensors of a model in the order in which the family stores them, without a tied head.
std::vector<HfTensor> hf_tensors(const DecoderConfig& config);
/// Name of the head, which a file may contain even if it is tied.
std::string_view hf_head_name() noexcept;
/// Whether a tensor of a file is no parameter: masks and frequency tables in old files.
bool is_hf_buffer(std::string_view name) noexcept;

/// Copy elements [begin, begin + n) of `tensor` to their places in `param`, or back.
void scatter_hf(const HfTensor& tensor, const DecoderConfig& config, std::int64_t begin,
                std::span<const float> from, std::span<float> param);
void gather_hf(const HfTensor& tensor, const DecoderConfig& config, std::int64_t begin,
               std::span<const float> param, std::span<float> into);

}  // namespace strata
