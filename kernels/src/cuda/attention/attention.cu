#include <algorithm>

#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention.h>

#include "attention/head_dim.h"
#include "cuda/attention/alibi_slopes.h"
#include "cuda/attention/attention_launch.h"
#include "cuda/attention/attention_mma.h"
#include "cuda/attention/cudnn_attention.h"
#include "cuda/attention/flash.h"

// No atomics: a thread block owns a tile of queries of one head, or a tile of keys of one key head, and loops
// over the tiles of the other kind. Heads of 16-bit values use tensor cores (MmaMath) if their dimension
// allows it; all other heads are multiplied in f32 (F32Math).
namespace strata::kernels::cuda {
namespace {

using detail::AlibiSlopes;
using detail::AttentionView;
using detail::BlockThreads;
using detail::kAttentionThreads;

// Shared memory limits an SM to one or two of these blocks, so __launch_bounds__ asks for a minimum of one
// and leaves each thread the registers it needs: with fewer the compiler spills.
template <class Math, int kTile, class T, class Out>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_forward_kernel(AttentionView<T> v, AlibiSlopes slopes, std::int64_t tiles, Out* out,
                             float* lse) {
  extern __shared__ __align__(16) std::byte shared[];
  const std::int64_t tile = blockIdx.x % tiles, head = blockIdx.x / tiles % v.heads,
                     batch = blockIdx.x / tiles / v.heads;
  detail::attention_forward_tile<Math, kTile>(BlockThreads(), shared, v, batch, head, tile * kTile,
                                              slopes(head), out, lse);
}
template <class Math, int kTile, class T>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_backward_q_kernel(AttentionView<T> v, AlibiSlopes slopes, std::int64_t tiles, const float* lse,
                                const T* dout, float* delta, T* dqkv, bool has_delta) {
  extern __shared__ __align__(16) std::byte shared[];
  const std::int64_t tile = blockIdx.x % tiles, head = blockIdx.x / tiles % v.heads,
                     batch = blockIdx.x / tiles / v.heads;
  detail::attention_backward_q_tile<Math, kTile>(BlockThreads(), shared, v, batch, head, tile * kTile,
                                                 slopes(head), lse, dout, delta, dqkv, has_delta);
}
template <class Math, int kTile, class T>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention_backward_kv_kernel(AttentionView<T> v, AlibiSlopes slopes, std::int64_t tiles, const float* lse,
                                 const T* dout, const float* delta, T* dkv) {
  extern __shared__ __align__(16) std::byte shared[];
  const std::int64_t tile = blockIdx.x % tiles, kv = blockIdx.x / tiles % v.kv_heads,
                     batch = blockIdx.x / tiles / v.kv_heads;
  detail::attention_backward_kv_tile<Math, kTile>(BlockThreads(), shared, v, batch, kv, tile * kTile, slopes,
                                                  lse, dout, delta, dkv);
}

/// The attention kernels for one tile size.
template <class M, int kRows>
struct Tiled {
  using Math = M;
  static constexpr int kTile = kRows;

  /// Shared memory of the largest of the three kernels.
  static std::int64_t shared_bytes(std::int64_t d) {
    const std::int64_t forward = detail::ForwardSharedStorage<Math, kTile>(nullptr, d).arena.bytes(),
                       query = detail::BackwardQSharedStorage<Math, kTile>(nullptr, d).arena.bytes(),
                       key = detail::BackwardKVSharedStorage<Math, kTile>(nullptr, d).arena.bytes();
    return std::max({forward, query, key});
  }

  template <class T>
  static Status forward(const AttentionForwardArgs& a, const AlibiSlopes& slopes, cudaStream_t queue) {
    return a.out.dtype == DType::f32 ? forward<T, float>(a, slopes, queue) : forward<T, T>(a, slopes, queue);
  }
  template <class T, class Out>
  static Status forward(const AttentionForwardArgs& a, const AlibiSlopes& slopes, cudaStream_t queue) {
    const AttentionView<T> v = detail::attention_view<T>(a);
    const std::int64_t tiles = dispatch::ceil_div(v.q_rows(), kTile), batches = detail::sequences_of(a);
    return detail::launch_attention(&attention_forward_kernel<Math, kTile, T, Out>, batches * v.heads * tiles,
                                    kAttentionThreads,
                                    detail::ForwardSharedStorage<Math, kTile>(nullptr, v.d).arena.bytes(),
                                    queue, v, slopes, tiles, a.out.as<Out>(), a.lse.as<float>());
  }
  template <class T>
  static Status backward(const AttentionBackwardArgs& a, const AlibiSlopes& slopes, cudaStream_t queue) {
    const AttentionView<T> v = detail::attention_view<T>(a);
    const std::int64_t query_tiles = dispatch::ceil_div(v.q_rows(), kTile),
                       key_tiles = dispatch::ceil_div(v.k_rows(), kTile), batches = detail::sequences_of(a);
    const bool has_delta = dispatch::is_present(a.delta);
    float* const delta = detail::delta_of(a);
    const float* lse = a.lse.as<float>();
    const T* dout = a.dout.as<T>();
    STRATA_TRY(detail::launch_attention(
        &attention_backward_q_kernel<Math, kTile, T>, batches * v.heads * query_tiles, kAttentionThreads,
        detail::BackwardQSharedStorage<Math, kTile>(nullptr, v.d).arena.bytes(), queue, v, slopes,
        query_tiles, lse, dout, delta, a.dqkv.as<T>(), has_delta));
    return detail::launch_attention(&attention_backward_kv_kernel<Math, kTile, T>,
                                    batches * v.kv_heads * key_tiles, kAttentionThreads,
                                    detail::BackwardKVSharedStorage<Math, kTile>(nullptr, v.d).arena.bytes(),
                                    queue, v, slopes, key_tiles, lse, dout, static_cast<const float*>(delta),
                                    dispatch::is_present(a.kv) ? a.dkv.as<T>() : a.dqkv.as<T>());
  }
};

// Whether the kernels of flash_attention.cu apply: 16-bit heads of 64, 96 or 128 values in packed rows, no
// soft cap.
template <class Args>
bool is_flash(const Args& a) {
  return !dispatch::is_present(a.kv) && a.shape.softcap == 0 &&
         detail::supports_flash_attention(a.qkv.dtype, detail::head_dim(a.qkv, a.shape), a.shape.backend);
}

// Whether cuDNN is requested and supports these arguments.
template <class Args>
bool is_cudnn(const Args& a, bool backward) {
  if (dispatch::is_present(a.kv) || dispatch::is_present(a.sinks)) return false;
  const std::int64_t d = detail::head_dim(a.qkv, a.shape);
  // The caller aligns the workspace and lse; those of a program always are.
  if (reinterpret_cast<std::uintptr_t>(a.workspace.data) % 256 != 0 ||
      reinterpret_cast<std::uintptr_t>(a.lse.data) % 16 != 0)
    return false;
  return !dispatch::is_present(a.doc_start) &&
         detail::cudnn_supports(
             detail::cudnn_attention(backward, dispatch::row_count(a.qkv), a.shape, a.qkv.dtype, d), a.shape);
}

bool is_aligned(const TensorView& view) { return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0; }

/// Returns `run(Tiled)` for the tile size that fits heads of `d` values. The choice depends only on the
/// dtype, on d, on the device and on whether the operands are aligned, which all operands of a program are.
template <class T, class Run>
Status dispatch_tile_size(std::int64_t d, bool aligned, const Run& run) {
  constexpr std::int64_t kWide = 128;  // wider f32 rows use smaller tiles
  if constexpr (!std::is_same_v<T, float>) {
    using Math = detail::MmaMath<T>;
    if (aligned && Math::supports(d)) {
      const std::int64_t most = detail::max_shared_bytes_per_block();
      if (Tiled<Math, 64>::shared_bytes(d) <= most) return run(Tiled<Math, 64>{});
      return Tiled<Math, 32>::shared_bytes(d) <= most ? run(Tiled<Math, 32>{}) : run(Tiled<Math, 16>{});
    }
  }
  return d > kWide ? run(Tiled<detail::F32Math, 16>{}) : run(Tiled<detail::F32Math, 32>{});
}

}  // namespace

Status attention_forward(Backend&, Stream& stream, const AttentionForwardArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  AlibiSlopes slopes{};
  STRATA_TRY(detail::compute_alibi_slopes("attention", a.shape, slopes));
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const bool aligned = is_aligned(a.qkv) && is_aligned(a.kv) && is_aligned(a.out);
  if (aligned && is_cudnn(a, false)) return detail::cudnn_attention_forward(a, queue);
  if (aligned && is_flash(a)) return detail::flash_attention_forward(a, slopes, queue);
  return dispatch::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) -> Status {
    return dispatch_tile_size<T>(detail::attention_view<T>(a).d, is_aligned(a.qkv) && is_aligned(a.kv),
                                 [&](auto tiled) { return tiled.template forward<T>(a, slopes, queue); });
  });
}

Status attention_backward(Backend&, Stream& stream, const AttentionBackwardArgs& a) {
  if (a.qkv.n_elems() == 0) return Status::ok();
  AlibiSlopes slopes{};
  STRATA_TRY(detail::compute_alibi_slopes("attention", a.shape, slopes));
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  const bool aligned = is_aligned(a.qkv) && is_aligned(a.dout) && is_aligned(a.dqkv);
  if (aligned && is_aligned(a.out) && is_cudnn(a, true)) return detail::cudnn_attention_backward(a, queue);
  if (aligned && is_flash(a)) return detail::flash_attention_backward(a, slopes, queue);
  return dispatch::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) -> Status {
    return dispatch_tile_size<T>(detail::attention_view<T>(a).d,
                                 is_aligned(a.qkv) && is_aligned(a.kv) && is_aligned(a.dout),
                                 [&](auto tiled) { return tiled.template backward<T>(a, slopes, queue); });
  });
}

}  // namespace strata::kernels::cuda
