#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/adapter/lora.h>

namespace strata::detail {

/// What the names of modules begin with in a folder of PEFT.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

/// The tensor of adapter_model.safetensors that holds a parameter of an adapter: elements [first, first +
/// rows * columns) of the parameter are a tensor, or columns of one. The parts of a tensor follow each other.
struct PeftTensor {
  std::string name;
  std::string param;
  std::int64_t first = 0, rows = 0, columns = 0;
  HfTensor::Layout layout = HfTensor::Layout::rows;  ///< the layout of the rows
  std::int64_t file_columns = 0;  ///< columns of the tensor, if the parameter has not all of them; else 0
  std::int64_t first_column = 0;  ///< its first column in the tensor
  bool is_vector = false;         ///< the tensor is [rows], and columns is 1
  /// If above 0, the parameter has as many matrices [rows, columns / experts] one after the other, and column
  /// r experts + e of the tensor is column r of matrix e.
  std::int64_t experts = 0;
  bool optional = false;  ///< PEFT stores such a tensor of the base in some files; it is not written
  std::int64_t n_elems() const noexcept { return rows * columns; }
  std::int64_t file_elems() const noexcept { return rows * (file_columns > 0 ? file_columns : columns); }
  std::vector<std::uint64_t> shape() const {
    const auto height = static_cast<std::uint64_t>(rows);
    if (is_vector) return {height};
    return {height, static_cast<std::uint64_t>(file_columns > 0 ? file_columns : columns)};
  }
};
/// A and B of each target, and the magnitudes of DoRA, in the order of the targets.
std::vector<PeftTensor> peft_tensors(const DecoderConfig& config, const std::vector<LoraTarget>& targets);

/// The tensors of an adapter of any method. Errors: those of lora_targets(),
/// saved_tensors() and token_targets().
Result<std::vector<PeftTensor>> adapter_tensors(const DecoderConfig& config, const AdapterSettings& settings);

/// Copy what a whole tensor has of the parameter to its place there, or back.
void scatter_peft(const PeftTensor& tensor, const DecoderConfig& config, std::span<const float> from,
                  std::span<float> param);
void gather_peft(const PeftTensor& tensor, const DecoderConfig& config, std::span<const float> param,
                 std::span<float> into);

}  // namespace strata::detail
