#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/hf/tensors.h>

namespace strata::detail {

/// A matrix that can have an adapter, by its module.
struct Matrix {
  std::string module, param;
  HfTensor::Layout layout;
  std::int64_t first_row, rows, columns;
  LoraPlace place = LoraPlace::linear;
};

/// The module that has the tensor.
std::string module_of(const HfTensor& tensor);
/// The last `n` parts of a name.
std::string_view last_parts(std::string_view name, int n);
/// The matrices of the blocks, of the token embedding and of the head, in the order of their tensors.
std::vector<Matrix> matrices_of(const std::vector<HfTensor>& tensors);
/// What PEFT targets of mixtures by target_parameters: matrices that transformers keeps as parameters of no
/// linear layer, the router and two of all experts, by the parameters' names.
std::vector<Matrix> matrices_of_mixtures(const std::vector<HfTensor>& tensors);

}  // namespace strata::detail
