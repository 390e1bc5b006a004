#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/str.h>
#include <strata/runtime/tensor_view.h>
#include <strata/runtime/threads/thread_pool.h>

#include "rows.h"
#include "dtype_dispatch.h"

namespace strata::kernels::detail {

/// Independent rows per work item: about 16,384 elements, so that scheduling an item costs little beside its
/// work.
constexpr std::int64_t rows_per_item(std::int64_t row_length) noexcept {
  return row_length > 0 && row_length < 16384 ? 16384 / row_length : 1;
}
/// Elements per work item of elementwise ops.
inline constexpr std::int64_t kElementsPerItem = 16384;

/// Calls body(first, count) in parallel for fixed ranges of `per_item` elements of [0, total).
template <class Body>
void parallel_for_ranges(ThreadPool& pool, std::int64_t total, std::int64_t per_item, const Body& body) {
  pool.parallel_for(ceil_div(total, per_item), [&](std::int64_t item) {
    const std::int64_t first = item * per_item;
    body(first, total - first < per_item ? total - first : per_item);
  });
}

/// Checks an op's arguments and records the first error.
class Check {
 public:
  explicit Check(const char* op) noexcept : op_(op) {}
  /// For an op whose stored dtype is that of its first operand, `first`.
  Check(const char* op, const char* name, const TensorView& first) : op_(op), storage_(first.dtype) {
    if (!is_storage(storage_)) fail(name, " is ", describe(first), "; it must be f32, bf16 or f16");
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

/// The implementations of one op: the host function, and the launch on CUDA.
template <class Args>
struct OpImpl {
  const char* name;
  void (*host)(const Args&, ThreadPool&);
  Status (*cuda)(Backend&, Stream&, const Args&);
};

/// Queues an op whose arguments were checked, and declares the memory that it reads and writes.
template <class Args>
Status enqueue(Backend& backend, Stream& stream, const OpImpl<Args>& op, const Args& args,
               std::initializer_list<TensorView> reads, std::initializer_list<TensorView> writes,
               BufferView workspace = {}) {
  if (backend.info().kind == DeviceKind::cuda) return op.cuda(backend, stream, args);
  HostCall call(op.name, op.host, args);
  for (const TensorView& view : reads)
    if (is_present(view) && view.bytes() > 0) call.reads(view.data, view.bytes());
  for (const TensorView& view : writes)
    if (is_present(view) && view.bytes() > 0) call.writes(view.data, view.bytes());
  if (workspace.bytes > 0) call.writes(workspace.data, workspace.bytes);
  return backend.host_call_async(call, stream);
}

}  // namespace strata::kernels::detail
