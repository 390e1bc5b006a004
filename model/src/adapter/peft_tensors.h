#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <strata/model/adapter/lora.h>

namespace strata::detail {

/// A tensor of adapter_model.safetensors: elements [first, first + rows * columns) of a parameter of
/// add_lora().
struct PeftTensor {
  std::string name;
  std::string param;
  std::int64_t first = 0, rows = 0, columns = 0;     ///< columns: 0 of a vector
  HfTensor::Layout layout = HfTensor::Layout::rows;  ///< of the rows
  std::int64_t n_elems() const noexcept { return columns == 0 ? rows : rows * columns; }
  std::vector<std::uint64_t> shape() const {
    if (columns == 0) return {static_cast<std::uint64_t>(rows)};
    return {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns)};
  }
};
/// A and B of each target, and the magnitudes of DoRA, in the order of the targets.
std::vector<PeftTensor> peft_tensors(const DecoderConfig& config, const std::vector<LoraTarget>& targets);

/// Copy a whole tensor to its place in the parameter, or back.
void scatter_peft(const PeftTensor& tensor, const DecoderConfig& config, std::span<const float> from,
                  std::span<float> param);
void gather_peft(const PeftTensor& tensor, const DecoderConfig& config, std::span<const float> param,
                 std::span<float> into);

}  // namespace strata::detail
