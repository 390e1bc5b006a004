#include "op_rules.h"

#include <string>

#include <strata/runtime/str.h>

namespace strata::detail::op_rules {

Status mismatch(std::string_view rule, In in) {
  std::string shapes;
  for (const ValueInfo* info : in)
    shapes += str(shapes.empty() ? "" : ", ",
                  info == nullptr ? std::string("none")
                                  : str(info->name, " ", to_string(info->dtype), to_string(info->shape)));
  return Status::error(Code::invalid, str("needs ", rule, "; given ", shapes));
}
bool has_type(const ValueInfo* info, const Shape& shape, DType dtype) {
  return info != nullptr && info->shape == shape && info->dtype == dtype;
}
bool is_compute_dtype(DType dtype) { return is_stored_dtype(dtype); }
bool is_matrix(const ValueInfo* info) {
  return info != nullptr && info->shape.rank == 2 && is_compute_dtype(info->dtype);
}
OutputSpec workspace(std::size_t bytes) {
  return {"workspace", {static_cast<std::int64_t>(bytes)}, DType::u8, true};
}

}  // namespace strata::detail::op_rules
