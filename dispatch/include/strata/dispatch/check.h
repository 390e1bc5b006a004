#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <strata/dispatch/rows.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>
#include <strata/runtime/str.h>
#include <strata/runtime/tensor_view.h>

namespace strata::dispatch {

/// Checks an op's arguments and records the first error.
class Check {
 public:
  explicit Check(const char* op) noexcept : op_(op) {}
  /// For an op whose stored dtype is that of its first operand, `first`.
  Check(const char* op, const char* name, const TensorView& first) : op_(op), storage_(first.dtype) {
    if (!is_stored_dtype(storage_)) fail(name, " is ", describe(first), "; it must be f32, bf16 or f16");
  }
  /// Requires exactly this dtype and shape.
  Check& shape(const char* name, const TensorView& view, DType dtype, const Shape& want) {
    if (view.dtype == dtype && view.shape == want) return *this;
    return fail(name, " is ", describe(view), "; it must be ", to_string(dtype), " ", to_string(want));
  }
  /// Requires the stored dtype and `n_rows` rows of `columns` elements, with any rank.
  Check& rows(const char* name, const TensorView& view, std::int64_t n_rows, std::int64_t columns) {
    return rows(name, view, storage_, n_rows, columns);
  }
  /// The same, if the tensor is given.
  Check& optional_rows(const char* name, const TensorView& view, std::int64_t n_rows, std::int64_t columns) {
    return is_present(view) ? rows(name, view, n_rows, columns) : *this;
  }
  Check& rows(const char* name, const TensorView& view, DType dtype, std::int64_t n_rows,
              std::int64_t columns) {
    if (view.dtype == dtype && is_present(view) && row_count(view) == n_rows && row_length(view) == columns)
      return *this;
    return fail(name, " is ", describe(view), "; it must be ", to_string(dtype), ", ", n_rows, " rows of ",
                columns);
  }
  /// Requires the dtype of a parameter's gradient: f32, or the stored dtype if it is not accumulated into.
  Check& gradient(const char* name, const TensorView& view, const Shape& want, bool accumulate) {
    shape(name, view, view.dtype == DType::f32 ? DType::f32 : storage_, want);
    return require(
        !accumulate || view.dtype == DType::f32, name, " is ", to_string(view.dtype),
        "; only an f32 gradient can be accumulated into, since a 16-bit sum would be rounded twice");
  }
  /// Requires `n` elements in any shape.
  Check& elements(const char* name, const TensorView& view, DType dtype, std::int64_t n) {
    if (view.dtype == dtype && is_present(view) && view.n_elems() == n) return *this;
    return fail(name, " is ", describe(view), "; it must be ", to_string(dtype), " with ", n, " elements");
  }
  /// The same, if the tensor is given.
  Check& optional_elements(const char* name, const TensorView& view, DType dtype, std::int64_t n) {
    return is_present(view) ? elements(name, view, dtype, n) : *this;
  }
  Check& workspace(BufferView view, std::size_t bytes) {
    return require(view.bytes >= bytes, "workspace has ", view.bytes, " bytes; it needs ", bytes);
  }
  template <class... Parts>
  Check& require(bool holds, const Parts&... message) {
    return holds ? *this : fail(message...);
  }
  const Status& status() const noexcept { return status_; }

 private:
  template <class... Parts>
  Check& fail(const Parts&... message) {  // allocates memory, which is allowed on failure
    if (status_.is_ok()) status_ = Status::error(Code::invalid, str(op_, ": ", message...));
    return *this;
  }
  static std::string describe(const TensorView& view) {
    return str(to_string(view.dtype), " ", to_string(view.shape));
  }
  const char* op_;
  DType storage_ = DType::f32;
  Status status_;
};

}  // namespace strata::dispatch
