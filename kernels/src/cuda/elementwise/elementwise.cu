#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/elementwise.h>

#include "cuda/row_math.h"

// One thread per element.
namespace strata::kernels::cuda {
namespace {

using dispatch::dispatch_launch;
using dispatch::kThreads;
using dispatch::num_blocks;
using dispatch::thread_index;

template <class T, class F>
__global__ void __launch_bounds__(kThreads) map_one(const T* x, T* y, std::int64_t n, F f) {
  if (const std::int64_t i = thread_index(); i < n) y[i] = f(x[i]);
}
template <class T, class F>
__global__ void __launch_bounds__(kThreads) map_two(const T* a, const T* b, T* y, std::int64_t n, F f) {
  if (const std::int64_t i = thread_index(); i < n) y[i] = f(a[i], b[i]);
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
struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return detail::stored_add(a, b);
  }
};

struct Scale {
  float factor;
  template <class T>
  __device__ T operator()(T x) const {
    return detail::stored_scale(x, factor);
  }
};
__global__ void __launch_bounds__(kThreads)
    softcap_kernel(const float* x, float* y, std::int64_t n, float cap) {
  if (const std::int64_t i = thread_index(); i < n) y[i] = detail::capped_logit(x[i], cap);
}

template <class F>
Status map(Stream& stream, const TensorView& x, const TensorView& y, F f) {
  const std::int64_t n = x.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(x.dtype, [&]<class T>(std::type_identity<T>) {
    map_one<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(x.as<T>(), y.as<T>(), n, f);
  });
}
template <class F>
Status map(Stream& stream, const TensorView& a, const TensorView& b, const TensorView& y, F f) {
  const std::int64_t n = a.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.dtype, [&]<class T>(std::type_identity<T>) {
    map_two<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(a.as<T>(), b.as<T>(), y.as<T>(), n, f);
  });
}

// i counts the n = rows * f outputs; the gate and up values of an output are f apart.
template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu(const T* gate_up, T* y, bool gelu, std::int64_t n, std::int64_t f) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const T* gate = gate_up + i / f * 2 * f + i % f;
  y[i] = gelu ? detail::stored_geglu(gate[0], gate[f]) : detail::stored_swiglu(gate[0], gate[f]);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_back(const T* gate_up, const T* dy, T* dgate_up, bool gelu, std::int64_t n, std::int64_t f) {
  const std::int64_t i = thread_index();
  if (i >= n) return;
  const std::int64_t at = i / f * 2 * f + i % f;
  const T gate = gate_up[at], up = gate_up[at + f];
  const auto d =
      gelu ? detail::stored_geglu_backward(gate, up, dy[i]) : detail::stored_swiglu_backward(gate, up, dy[i]);
  dgate_up[at] = d.gate;
  dgate_up[at + f] = d.up;
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
  return map(stream, a.x, a.y, Relu{});
}
Status relu_backward(Backend&, Stream& stream, const ReluBackwardArgs& a) {
  return map(stream, a.x, a.dy, a.dx, ReluBackward{});
}
Status add(Backend&, Stream& stream, const AddArgs& a) { return map(stream, a.a, a.b, a.y, Add{}); }

Status swiglu_forward(Backend&, Stream& stream, const SwigluForwardArgs& a) {
  const std::int64_t n = a.y.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.y.dtype, [&]<class T>(std::type_identity<T>) {
    swiglu<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(a.gate_up.as<T>(), a.y.as<T>(), a.gelu, n,
                                                            dispatch::row_length(a.y));
  });
}
Status swiglu_backward(Backend&, Stream& stream, const SwigluBackwardArgs& a) {
  const std::int64_t n = a.dy.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    swiglu_back<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(
        a.gate_up.as<T>(), a.dy.as<T>(), a.dgate_up.as<T>(), a.gelu, n, dispatch::row_length(a.dy));
  });
}

Status scale(Backend&, Stream& stream, const ScaleArgs& a) { return map(stream, a.x, a.y, Scale{a.factor}); }
Status softcap(Backend&, Stream& stream, const SoftcapArgs& a) {
  const std::int64_t n = a.x.n_elems();
  if (n == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  softcap_kernel<<<num_blocks(n, kThreads), kThreads, 0, queue>>>(a.x.as<float>(), a.y.as<float>(), n, a.cap);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
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
