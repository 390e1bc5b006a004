#include "support/op_test.h"

#include <span>

#include <strata/runtime/convert.h>

namespace strata::test {

Tensor::Tensor(Shape shape, const std::vector<float>& values, DType dtype)
    : shape_(shape), dtype_(dtype), storage_((values.size() + 1) * size_of(dtype)) {
  must(narrow_from_f32(values, dtype, std::span(storage_).subspan(size_of(dtype))));
}

std::vector<float> Tensor::values() const {
  std::vector<float> out(static_cast<std::size_t>(shape_.n_elems()));
  must(widen_to_f32(dtype_, std::span(storage_).subspan(size_of(dtype_)), out));
  return out;
}

}  // namespace strata::test
