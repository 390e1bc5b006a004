#include <strata/runtime/tensor_view.h>

namespace strata {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape.dim(i));
  }
  return text + "]";
}

}  // namespace strata
