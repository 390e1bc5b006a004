#include "cuda/attention_mma.h"
#include "cuda/launch.h"
#include "cuda/slopes.h"

#include <algorithm>

// No atomics: a block has a tile of queries of one head, or of keys of one key head, and takes the others in
// turn. Heads of 16-bit values whose length tensor cores take are theirs; others are multiplied in f32.
namespace strata::kernels::cuda {
namespace {

using detail::AttentionView;
using detail::BlockCrew;
using detail::kCrew;
using detail::Slopes;

// Shared memory lets one or two blocks onto a multiprocessor, so that each may have the registers it wants:
// with fewer the compiler spills.
template <class Math, int kTile, class T>
__global__ void __launch_bounds__(kCrew, 1)
    forward_tiles(AttentionView<T> v, Slopes slopes, std::int64_t tiles, T* out, float* lse) {
  extern __shared__ __align__(16) std::byte shared[];
  const std::int64_t tile = blockIdx.x % tiles, head = blockIdx.x / tiles % v.heads,
                     batch = blockIdx.x / tiles / v.heads;
  detail::attention_tile<Math, kTile>(BlockCrew(), shared, v, batch, head, tile * kTile, slopes(head), out,
                                      lse);
}
template <class Math, int kTile, class T>
__global__ void __launch_bounds__(kCrew, 1)
    query_tiles(AttentionView<T> v, Slopes slopes, std::int64_t tiles, const float* lse, const T* dout,
                float* centers, T* dqkv) {
  extern __shared__ __align__(16) std::byte shared[];
  const std::int64_t tile = blockIdx.x % tiles, head = blockIdx.x / tiles % v.heads,
                     batch = blockIdx.x / tiles / v.heads;
  detail::attention_query_tile<Math, kTile>(BlockCrew(), shared, v, batch, head, tile * kTile, slopes(head),
                                            lse, dout, centers, dqkv);
}
template <class Math, int kTile, class T>
__global__ void __launch_bounds__(kCrew, 1)
    key_tiles(AttentionView<T> v, Slopes slopes, std::int64_t tiles, const float* lse, const T* dout,
              const float* centers, T* dqkv) {
  extern __shared__ __align__(16) std::byte shared[];
  const std::int64_t tile = blockIdx.x % tiles, kv = blockIdx.x / tiles % v.kv_heads,
                     batch = blockIdx.x / tiles / v.kv_heads;
  detail::attention_key_tile<Math, kTile>(BlockCrew(), shared, v, batch, kv, tile * kTile, slopes, lse, dout,
                                          centers, dqkv);
}

/// A launch of blocks with so much shared memory, more than which a device has may be asked for.
template <class Kernel, class... Args>
Status launch(Kernel kernel, std::int64_t blocks, std::int64_t bytes, cudaStream_t queue,
              const Args&... args) {
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess) {
    (void)cudaGetLastError();
    return Status::error(Code::unsupported, "attention: heads of this size take " + std::to_string(bytes) +
                                                " bytes of shared memory, more than this GPU has");
  }
  kernel<<<static_cast<unsigned>(blocks), kCrew, static_cast<std::size_t>(bytes), queue>>>(args...);
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

/// Attention with tiles of one size.
template <class M, int kRows>
struct Tiled {
  using Math = M;
  static constexpr int kTile = kRows;

  /// What the largest of its kernels takes.
  static std::int64_t shared_bytes(std::int64_t d) {
    const std::int64_t forward = detail::ForwardMemory<Math, kTile>(nullptr, d).memory.bytes(),
                       query = detail::QueryMemory<Math, kTile>(nullptr, d).memory.bytes(),
                       key = detail::KeyMemory<Math, kTile>(nullptr, d).memory.bytes();
    return std::max({forward, query, key});
  }

  template <class T>
  static Status forward(const AttentionForwardArgs& a, const Slopes& slopes, cudaStream_t queue) {
    const AttentionView<T> v = view_of<T>(a);
    const std::int64_t tiles = detail::ceil_div(v.seq, kTile), batches = detail::row_count(a.qkv) / v.seq;
    return launch(&forward_tiles<Math, kTile, T>, batches * v.heads * tiles,
                  detail::ForwardMemory<Math, kTile>(nullptr, v.d).memory.bytes(), queue, v, slopes, tiles,
                  a.out.as<T>(), a.lse.as<float>());
  }
  template <class T>
  static Status backward(const AttentionBackwardArgs& a, const Slopes& slopes, cudaStream_t queue) {
    const AttentionView<T> v = view_of<T>(a);
    const std::int64_t tiles = detail::ceil_div(v.seq, kTile), batches = detail::row_count(a.qkv) / v.seq;
    auto* centers = reinterpret_cast<float*>(a.workspace.data);
    const float* lse = a.lse.as<float>();
    const T* dout = a.dout.as<T>();
    STRATA_TRY(launch(&query_tiles<Math, kTile, T>, batches * v.heads * tiles,
                      detail::QueryMemory<Math, kTile>(nullptr, v.d).memory.bytes(), queue, v, slopes, tiles,
                      lse, dout, centers, a.dqkv.as<T>()));
    return launch(&key_tiles<Math, kTile, T>, batches * v.kv_heads * tiles,
                  detail::KeyMemory<Math, kTile>(nullptr, v.d).memory.bytes(), queue, v, slopes, tiles, lse,
                  dout, static_cast<const float*>(centers), a.dqkv.as<T>());
  }
};

bool is_aligned(const TensorView& view) { return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0; }

/// Of one block, asked of the current device once.
std::int64_t most_shared_bytes() {
  int device = 0, most = 48 << 10;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
    (void)cudaGetLastError();
  return most;
}

/// What `run(Tiled)` returns for the tiles that heads of `d` values are cut into: by dtype, d and the device
/// alone, and by whether operands are aligned, as all of a program are.
template <class T, class Run>
Status with_tiles(std::int64_t d, bool aligned, const Run& run) {
  constexpr std::int64_t kWide = 128;  // f32 rows of more have smaller tiles
  if constexpr (!std::is_same_v<T, float>) {
    using Math = detail::MmaMath<T>;
    if (aligned && Math::takes(d)) {
      static const std::int64_t most = most_shared_bytes();
      return Tiled<Math, 64>::shared_bytes(d) <= most ? run(Tiled<Math, 64>{}) : run(Tiled<Math, 32>{});
    }
  }
  return d > kWide ? run(Tiled<detail::F32Math, 16>{}) : run(Tiled<detail::F32Math, 32>{});
}

}  // namespace

Status attention_forward(Backend&, Stream& stream, const AttentionForwardArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  Slopes slopes{};
  STRATA_TRY(detail::slopes_of("attention", a.shape.heads, a.shape.alibi, slopes));
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::with_stored(a.qkv.dtype, [&]<class T>(std::type_identity<T>) -> Status {
    return with_tiles<T>(view_of<T>(a).d, is_aligned(a.qkv),
                         [&](auto tiled) { return tiled.template forward<T>(a, slopes, queue); });
  });
}

Status attention_backward(Backend&, Stream& stream, const AttentionBackwardArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  Slopes slopes{};
  STRATA_TRY(detail::slopes_of("attention", a.shape.heads, a.shape.alibi, slopes));
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return detail::with_stored(a.qkv.dtype, [&]<class T>(std::type_identity<T>) -> Status {
    return with_tiles<T>(view_of<T>(a).d, is_aligned(a.qkv) && is_aligned(a.dout),
                         [&](auto tiled) { return tiled.template backward<T>(a, slopes, queue); });
  });
}

}  // namespace strata::kernels::cuda
