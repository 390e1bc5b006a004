#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/elementwise.h>

#include "cuda/elementwise/packs.h"
#include "cuda/row_math.h"

// One thread per pack of 16 bytes (packs.h), or per element where tensors are not aligned so.
namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::row_grid;
using dispatch::thread_index;

template <class T, class F>
__global__ void __launch_bounds__(kThreads) map_one(const T* x, T* y, std::int64_t n, F f) {
  if (const std::int64_t i = thread_index(); i < n) y[i] = f(x[i]);
}
template <class T, class F>
__global__ void __launch_bounds__(kThreads) map_two(const T* a, const T* b, T* y, std::int64_t n, F f) {
  if (const std::int64_t i = thread_index(); i < n) y[i] = f(a[i], b[i]);
}
template <class T, class F>
__global__ void __launch_bounds__(kThreads) map_one_packed(const T* x, T* y, std::int64_t n, F f) {
  detail::map_pack(thread_index(), n, f, y, x);
}
template <class T, class F>
__global__ void __launch_bounds__(kThreads)
    map_two_packed(const T* a, const T* b, T* y, std::int64_t n, F f) {
  detail::map_pack(thread_index(), n, f, y, a, b);
}
template <class T>
unsigned pack_blocks(std::int64_t n) {
  return num_blocks(n, std::int64_t{kThreads} * detail::Pack<T>::kSize);
}

// Functors instead of lambdas, so that the kernels have names in profiles.
struct Gelu {
  template <class T>
  __device__ T operator()(T x) const {
    return detail::stored_gelu(x);
  }
};
struct GeluBackward {
  template <class T>
  __device__ T operator()(T x, T dy) const {
    return detail::stored_gelu_backward(x, dy);
  }
};
struct Relu {
  template <class T>
  __device__ T operator()(T x) const {
    return detail::stored_relu(x);
  }
};
struct ReluBackward {
  template <class T>
  __device__ T operator()(T x, T dy) const {
    return detail::stored_relu_backward(x, dy);
  }
};
struct Relu2 {
  template <class T>
  __device__ T operator()(T x) const {
    return detail::stored_relu2(x);
  }
};
struct Relu2Backward {
  template <class T>
  __device__ T operator()(T x, T dy) const {
    return detail::stored_relu2_backward(x, dy);
  }
};
struct SiluGate {
  template <class T>
  __device__ T operator()(T x, T gate) const {
    return detail::stored_silu_gate(x, gate);
  }
};
struct SigmoidGate {
  template <class T>
  __device__ T operator()(T x, T gate) const {
    return detail::stored_sigmoid_gate(x, gate);
  }
};
struct Multiply {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return detail::stored_product(a, b);
  }
};
struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return detail::stored_add(a, b);
  }
};

struct Scale {
  float factor;
  const float* by;  // null: 1
  template <class T>
  __device__ T operator()(T x) const {
    return detail::stored_scale(x, by != nullptr ? *by * factor : factor);
  }
};
struct Softcap {
  float cap, inverse;
  template <class T>
  __device__ T operator()(T x) const {
    return from_f32<T>(detail::capped_logit(to_f32(x), cap, inverse));
  }
};

template <class F>
Status map(Stream& stream, const TensorView& x, const TensorView& y, F f) {
  const std::int64_t n = x.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(x.dtype, [&]<class T>(std::type_identity<T>) {
    const T* const from = x.as<T>();
    T* const into = y.as<T>();
    if (detail::are_pack_aligned(from, into))
      map_one_packed<<<pack_blocks<T>(n), kThreads, 0, queue>>>(from, into, n, f);
    else
      map_one<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(from, into, n, f);
  });
}
template <class F>
Status map(Stream& stream, const TensorView& a, const TensorView& b, const TensorView& y, F f) {
  const std::int64_t n = a.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.dtype, [&]<class T>(std::type_identity<T>) {
    const T *const one = a.as<T>(), *const other = b.as<T>();
    T* const into = y.as<T>();
    if (detail::are_pack_aligned(one, other, into))
      map_two_packed<<<pack_blocks<T>(n), kThreads, 0, queue>>>(one, other, into, n, f);
    else
      map_two<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(one, other, into, n, f);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sigmoid_gate_back(const T* x, const T* gate, const T* dy, T* dx, T* dgate, bool silu, std::int64_t n) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const auto d = silu ? detail::stored_silu_gate_backward(x[i], gate[i], dy[i])
                      : detail::stored_sigmoid_gate_backward(x[i], gate[i], dy[i]);
  dx[i] = d.x;
  dgate[i] = d.gate;
}

// The grid has the parts of a row in x, and rows in y, of which a block has several if there are many.
template <int kN, class T>
__global__ void __launch_bounds__(kThreads) gate(const T* gate_up, T* y, bool gelu, int rows, int f) {
  const int first = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kN;
  if (first >= f) return;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y))
    detail::gate_part<kN>(gate_up + std::int64_t{row} * 2 * f, y + std::int64_t{row} * f, gelu, f, first);
}
template <int kN, class T>
__global__ void __launch_bounds__(kThreads)
    gate_back(const T* gate_up, const T* dy, T* dgate_up, bool gelu, int rows, int f) {
  const int first = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kN;
  if (first >= f) return;
  for (int row = static_cast<int>(blockIdx.y); row < rows; row += static_cast<int>(gridDim.y)) {
    const std::int64_t at = std::int64_t{row} * 2 * f;
    detail::gate_part_backward<kN>(gate_up + at, dy + std::int64_t{row} * f, dgate_up + at, gelu, f, first);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) fill_with(T* x, T value, std::int64_t n) {
  if (const std::int64_t i = thread_index(); i < n) x[i] = value;
}

}  // namespace

Status gelu_forward(Backend&, Stream& stream, const GeluForwardArgs& a) {
  return map(stream, a.x, a.y, Gelu{});
}
Status gelu_backward(Backend&, Stream& stream, const GeluBackwardArgs& a) {
  return map(stream, a.x, a.dy, a.dx, GeluBackward{});
}
Status relu_forward(Backend&, Stream& stream, const ReluForwardArgs& a) {
  return a.squared ? map(stream, a.x, a.y, Relu2{}) : map(stream, a.x, a.y, Relu{});
}
Status relu_backward(Backend&, Stream& stream, const ReluBackwardArgs& a) {
  return a.squared ? map(stream, a.x, a.dy, a.dx, Relu2Backward{})
                   : map(stream, a.x, a.dy, a.dx, ReluBackward{});
}
Status sigmoid_gate_forward(Backend&, Stream& stream, const SigmoidGateForwardArgs& a) {
  return a.silu ? map(stream, a.x, a.gate, a.y, SiluGate{}) : map(stream, a.x, a.gate, a.y, SigmoidGate{});
}
Status sigmoid_gate_backward(Backend&, Stream& stream, const SigmoidGateBackwardArgs& a) {
  const std::int64_t n = a.x.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    sigmoid_gate_back<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(
        a.x.as<T>(), a.gate.as<T>(), a.dy.as<T>(), a.dx.as<T>(), a.dgate.as<T>(), a.silu, n);
  });
}
Status multiply(Backend&, Stream& stream, const MultiplyArgs& a) {
  return map(stream, a.a, a.b, a.y, Multiply{});
}
Status add(Backend&, Stream& stream, const AddArgs& a) { return map(stream, a.a, a.b, a.y, Add{}); }

Status swiglu_forward(Backend&, Stream& stream, const SwigluForwardArgs& a) {
  const auto rows = static_cast<int>(dispatch::row_count(a.y)),
             f = static_cast<int>(dispatch::row_length(a.y));
  if (a.y.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.y.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int kSize = detail::Pack<T>::kSize;
    const T* const from = a.gate_up.as<T>();
    T* const into = a.y.as<T>();
    if (f % kSize == 0 && detail::are_pack_aligned(from, into))
      gate<kSize><<<row_grid(rows, f / kSize), kThreads, 0, queue>>>(from, into, a.gelu, rows, f);
    else
      gate<1><<<row_grid(rows, f), kThreads, 0, queue>>>(from, into, a.gelu, rows, f);
  });
}
Status swiglu_backward(Backend&, Stream& stream, const SwigluBackwardArgs& a) {
  const auto rows = static_cast<int>(dispatch::row_count(a.dy)),
             f = static_cast<int>(dispatch::row_length(a.dy));
  if (a.dy.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    constexpr int kSize = detail::Pack<T>::kSize;
    const T *const from = a.gate_up.as<T>(), *const dy = a.dy.as<T>();
    T* const into = a.dgate_up.as<T>();
    if (f % kSize == 0 && detail::are_pack_aligned(from, dy, into))
      gate_back<kSize><<<row_grid(rows, f / kSize), kThreads, 0, queue>>>(from, dy, into, a.gelu, rows, f);
    else
      gate_back<1><<<row_grid(rows, f), kThreads, 0, queue>>>(from, dy, into, a.gelu, rows, f);
  });
}

Status scale(Backend&, Stream& stream, const ScaleArgs& a) {
  return map(stream, a.x, a.y, Scale{a.factor, a.by.as<float>()});
}
Status softcap(Backend&, Stream& stream, const SoftcapArgs& a) {
  return map(stream, a.x, a.y, Softcap{a.cap, 1.0f / a.cap});
}

Status fill(Backend&, Stream& stream, const FillArgs& a) {
  const std::int64_t n = a.x.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.x.dtype, [&]<class T>(std::type_identity<T>) {
    fill_with<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(a.x.as<T>(), from_f32<T>(a.value), n);
  });
}

}  // namespace strata::kernels::cuda
