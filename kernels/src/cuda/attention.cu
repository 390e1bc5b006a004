#include "cuda/attention_math.h"
#include "cuda/launch.h"
#include "cuda/slopes.h"

// The general attention: f32 arithmetic on tiles in shared memory, any head up to what that holds, no
// atomics: a block has a tile of queries of one head, or of keys of one key head, and takes the others in
// turn.
namespace strata::kernels::cuda {
namespace {

using detail::AttentionView;
using detail::BlockCrew;
using detail::kCrew;
using detail::Slopes;

template <int kTile, class T>
__global__ void __launch_bounds__(kCrew)
    forward_tiles(AttentionView<T> v, Slopes slopes, std::int64_t tiles, T* out, float* lse) {
  extern __shared__ float shared[];
  const std::int64_t tile = blockIdx.x % tiles, head = blockIdx.x / tiles % v.heads,
                     batch = blockIdx.x / tiles / v.heads;
  detail::attention_tile<kTile>(BlockCrew(), shared, v, batch, head, tile * kTile, slopes(head), out, lse);
}
template <int kTile, class T>
__global__ void __launch_bounds__(kCrew)
    query_tiles(AttentionView<T> v, Slopes slopes, std::int64_t tiles, const float* lse, const T* dout,
                float* centers, T* dqkv) {
  extern __shared__ float shared[];
  const std::int64_t tile = blockIdx.x % tiles, head = blockIdx.x / tiles % v.heads,
                     batch = blockIdx.x / tiles / v.heads;
  detail::attention_query_tile<kTile>(BlockCrew(), shared, v, batch, head, tile * kTile, slopes(head), lse,
                                      dout, centers, dqkv);
}
template <int kTile, class T>
__global__ void __launch_bounds__(kCrew)
    key_tiles(AttentionView<T> v, Slopes slopes, std::int64_t tiles, const float* lse, const T* dout,
              const float* centers, T* dqkv) {
  extern __shared__ float shared[];
  const std::int64_t tile = blockIdx.x % tiles, kv = blockIdx.x / tiles % v.kv_heads,
                     batch = blockIdx.x / tiles / v.kv_heads;
  detail::attention_key_tile<kTile>(BlockCrew(), shared, v, batch, kv, tile * kTile, slopes, lse, dout,
                                    centers, dqkv);
}

/// A launch of blocks with so many floats of shared memory, more than which a device has may be asked for.
template <class Kernel, class... Args>
Status launch(Kernel kernel, std::int64_t blocks, std::int64_t floats, cudaStream_t queue,
              const Args&... args) {
  const auto bytes = static_cast<std::size_t>(floats) * sizeof(float);
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess) {
    (void)cudaGetLastError();
    return Status::error(Code::unsupported, "attention: heads of this size take " + std::to_string(bytes) +
                                                " bytes of shared memory, more than this GPU has");
  }
  kernel<<<static_cast<unsigned>(blocks), kCrew, bytes, queue>>>(args...);
  STRATA_CUDA_TRY(cudaGetLastError());
  return Status::ok();
}

template <class T, class Args>
AttentionView<T> view_of(const Args& a) {
  const std::int64_t d = detail::row_length(a.qkv) / (a.shape.heads + 2 * a.shape.kv_heads);
  return {a.qkv.template as<T>(),
          detail::is_given(a.doc_start) ? a.doc_start.template as<std::int32_t>() : nullptr,
          a.shape.heads,
          a.shape.kv_heads,
          d,
          a.shape.seq,
          static_cast<float>(1.0 / sqrt(static_cast<double>(d))),
          a.shape.causal};
}

template <int kTile, class T>
Status forward(const AttentionForwardArgs& a, const Slopes& slopes, cudaStream_t queue) {
  const AttentionView<T> v = view_of<T>(a);
  const std::int64_t tiles = detail::ceil_div(v.seq, kTile), batches = detail::row_count(a.qkv) / v.seq;
  return launch(&forward_tiles<kTile, T>, batches * v.heads * tiles,
                detail::attention_floats<kTile>(v.d, 4, 1, 3), queue, v, slopes, tiles, a.out.as<T>(),
                a.lse.as<float>());
}
template <int kTile, class T>
Status backward(const AttentionBackwardArgs& a, const Slopes& slopes, cudaStream_t queue) {
  const AttentionView<T> v = view_of<T>(a);
  const std::int64_t tiles = detail::ceil_div(v.seq, kTile), batches = detail::row_count(a.qkv) / v.seq;
  auto* centers = reinterpret_cast<float*>(a.workspace.data);
  const float* lse = a.lse.as<float>();
  const T* dout = a.dout.as<T>();
  STRATA_TRY(launch(&query_tiles<kTile, T>, batches * v.heads * tiles,
                    detail::attention_floats<kTile>(v.d, 5, 2, 1), queue, v, slopes, tiles, lse, dout,
                    centers, a.dqkv.as<T>()));
  return launch(&key_tiles<kTile, T>, batches * v.kv_heads * tiles,
                detail::attention_floats<kTile>(v.d, 6, 2, 0), queue, v, slopes, tiles, lse, dout,
                static_cast<const float*>(centers), a.dqkv.as<T>());
}

// Wide heads have smaller tiles.
constexpr std::int64_t kWide = 128;

}  // namespace

Status attention_forward(Backend&, Stream& stream, const AttentionForwardArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  Slopes slopes{};
  STRATA_TRY(detail::slopes_of("attention", a.shape.heads, a.shape.alibi, slopes));
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::with_stored(a.qkv.dtype, [&]<class T>(std::type_identity<T>) -> Status {
    return view_of<T>(a).d > kWide ? forward<16, T>(a, slopes, queue) : forward<32, T>(a, slopes, queue);
  });
}

Status attention_backward(Backend&, Stream& stream, const AttentionBackwardArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  Slopes slopes{};
  STRATA_TRY(detail::slopes_of("attention", a.shape.heads, a.shape.alibi, slopes));
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::with_stored(a.qkv.dtype, [&]<class T>(std::type_identity<T>) -> Status {
    return view_of<T>(a).d > kWide ? backward<16, T>(a, slopes, queue) : backward<32, T>(a, slopes, queue);
  });
}

}  // namespace strata::kernels::cuda
