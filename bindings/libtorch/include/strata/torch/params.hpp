/// Parameters and sessions of strata/torch.hpp.
#pragma once

#include <strata/torch/options.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace strata::torch {

namespace detail {

using ::torch::Tensor;

inline void must(strata_status status) {
  if (status != STRATA_OK) throw Error(status, strata_last_error());
}

template <class... Parts>
[[noreturn]] void fail(strata_status status, const Parts&... parts) {
  throw Error(status, ::c10::str(parts...));
}

/// Owns a session.
class Session {
 public:
  explicit Session(const strata_session_options& options) { must(strata_session_create(&options, &handle_)); }
  Session(Session&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  Session& operator=(Session&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Session() { close(); }

  strata_session get() const noexcept { return handle_; }
  /// Calls with get() return STRATA_CLOSED from now on.
  void close() const noexcept {
    if (handle_ != 0) strata_session_close(handle_);
  }

 private:
  strata_session handle_ = 0;
};

/// The strata dtype of a tensor, or -1.
inline strata_dtype dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ::at::kFloat:
      return STRATA_F32;
    case ::at::kBFloat16:
      return STRATA_BF16;
    case ::at::kHalf:
      return STRATA_F16;
    default:
      return -1;
  }
}

/// Whether two tensors of one shape have their elements in the same order in memory.
inline bool same_order(::at::IntArrayRef sizes, ::at::IntArrayRef a, ::at::IntArrayRef b) {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  return true;
}

/// Throws if a parameter cannot be updated where it is.
inline void check_param(const Tensor& param, const std::string& name) {
  if (!param.defined()) fail(STRATA_INVALID, "parameter '", name, "' is undefined");
  if (!param.device().is_cpu())
    fail(STRATA_UNSUPPORTED, "parameter '", name, "' is on ", param.device(),
         "; only parameters in CPU memory can be updated");
  if (dtype_of(param) < 0)
    fail(STRATA_UNSUPPORTED, "parameter '", name, "' is ", param.scalar_type(),
         "; it must be Float, BFloat16 or Half");
  if (param.layout() != ::at::kStrided || !param.is_non_overlapping_and_dense() || param.is_neg())
    fail(STRATA_UNSUPPORTED, "parameter '", name, "' is ", param.layout(), " with strides ", param.strides(),
         "; its elements must fill their memory");
  const std::int64_t needed =
      (param.storage_offset() + param.numel()) * static_cast<std::int64_t>(param.element_size());
  const auto stored = static_cast<std::int64_t>(param.storage().nbytes());
  if (param.numel() > 0 && stored < needed)
    fail(STRATA_INVALID, "the storage of parameter '", name, "' has ", stored, " bytes; its elements need ",
         needed);
}

/// The gradient in the memory order of its parameter: a copy only if it is in another one.
inline Tensor dense_gradient(const Tensor& param, const std::string& name) {
  const Tensor& gradient = param.grad();
  if (gradient.layout() != ::at::kStrided)
    fail(STRATA_UNSUPPORTED, "the gradient of parameter '", name, "' is ", gradient.layout(),
         "; only dense ones are supported");
  if (!gradient.device().is_cpu() || dtype_of(gradient) < 0)
    fail(STRATA_UNSUPPORTED, "the gradient of parameter '", name, "' is ", gradient.scalar_type(), " on ",
         gradient.device(), "; it must be Float, BFloat16 or Half in CPU memory");
  if (gradient.sizes() != param.sizes())
    fail(STRATA_INVALID, "the gradient of parameter '", name, "' has the shape ", gradient.sizes(),
         ", the parameter ", param.sizes());
  if (same_order(param.sizes(), gradient.strides(), param.strides()) && !gradient.is_neg()) return gradient;
  return ::at::empty_strided(param.sizes(), param.strides(), gradient.options()).copy_(gradient);
}

/// A parameter that has states.
struct Param {
  Tensor tensor;
  std::string name;
  ::at::ScalarType dtype;
  std::vector<std::int64_t> sizes, strides;

  Param(const Tensor& param, std::string param_name)
      : tensor(param),
        name(std::move(param_name)),
        dtype(param.scalar_type()),
        sizes(param.sizes().vec()),
        strides(param.strides().vec()) {}

  /// Throws if the tensor is not what its states were made for: memory would be overwritten.
  void check() const {
    check_param(tensor, name);
    if (tensor.scalar_type() != dtype || tensor.sizes() != sizes ||
        !same_order(sizes, tensor.strides(), strides))
      fail(STRATA_INVALID, "parameter '", name, "' was ", dtype, " of ", ::at::IntArrayRef(sizes),
           " with strides ", ::at::IntArrayRef(strides), " when its states were made, and is ",
           tensor.scalar_type(), " of ", tensor.sizes(), " with strides ", tensor.strides(),
           ": make a new optimizer after changing a model");
  }
};

/// Throws if two parameters have memory in common: each would overwrite what the other has learned.
class OverlapCheck {
 public:
  void add(const Tensor& param, const std::string& name) {
    if (param.numel() == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(param.data_ptr());
    ranges_.push_back({begin, begin + param.nbytes(), &name});
  }
  void check() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < ranges_.size(); ++i)
      if (ranges_[i].begin < ranges_[i - 1].end)
        fail(STRATA_INVALID, "parameters '", *ranges_[i - 1].name, "' and '", *ranges_[i].name,
             "' share memory; a shared parameter must be given once");
  }

 private:
  struct Range {
    std::uintptr_t begin, end;
    const std::string* name;
  };
  std::vector<Range> ranges_;
};

/// A session with the parameters that it was made for, and the updates of a step.
struct Sealed {
  Session session;
  std::vector<Param> params;
  std::vector<void*> addresses;  // where the parameters were last found
  std::vector<strata_update> updates;
};

}  // namespace detail

}  // namespace strata::torch
