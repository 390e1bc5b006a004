#pragma once

#include "hf/stored/stored_matrix.h"

namespace strata::detail {

/// A way of storing quantized matrices in folders.
struct StoredForm {
  /// Whether the folder has the matrix whose tensor would be `weight` in this form.
  bool (*is_one)(const std::string& weight, const FindTensor& find);
  /// The matrix. `names` gets the names of all its tensors. Errors:
  /// `unsupported` for another quantization, `corrupt` for tensors that do not belong together; by name, with
  /// both numbers.
  Result<std::unique_ptr<StoredMatrix>> (*open)(const StoredWeight& weight, const FindTensor& find,
                                                std::vector<std::string>& names);
  bool has_stacks;  ///< whether a weight may be the matrices of several experts
};
/// The form in which the folder has the matrix; null if it is not quantized.
const StoredForm* stored_form_of(const std::string& weight, const FindTensor& find);

}  // namespace strata::detail
