#include <algorithm>

#include <strata/dispatch/rows.h>

#include "cuda/attention/attention_launch.h"
#include "cuda/attention/flash.h"
#include "cuda/attention/flash_forward.h"
#include "cuda/attention/flash_forward_wgmma.h"
#include "cuda/attention/flash_backward_kv.h"
#include "cuda/attention/flash_backward_q.h"
#include "cuda/attention/warpgroup/tensor_map.h"

namespace strata::kernels::detail {
namespace {

/// Per policy: the thread block, the minimum number of blocks per SM, and the TMA maps from which operands
/// are loaded. With mma.sync the threads load operands themselves (cp.async) and need no maps.
template <class Policy>
struct KernelTraits {
  struct TmaMaps {};
  struct ThreadBlock : BlockWarps<Policy::kWarps> {
    static constexpr int kBarrierBytes = 0;
    __device__ ThreadBlock(std::byte*, const TmaMaps&) {}
  };
  template <class Tile>
  using ForwardBlock = ThreadBlock;
  static constexpr int kThreads = ThreadBlock::kThreads, kMinBlocksPerSm = 2;
  static Status make_tma_maps(const TmaTensor&, const TmaTensor*, DType, TmaMaps&) { return Status::ok(); }
};
template <>
struct KernelTraits<WgmmaPolicy> {
  using ThreadBlock = BlockTmaWarps<WgmmaPolicy::kWarps, CUtensorMap>;
  template <class Tile>
  using ForwardBlock = BlockWarpRoles<typename Tile::Barriers, CUtensorMap>;
  using TmaMaps = TensorMaps<CUtensorMap>;
  static constexpr int kThreads = ThreadBlock::kThreads, kMinBlocksPerSm = 1;
  static Status make_tma_maps(const TmaTensor& qkv, const TmaTensor* dout, DType dtype, TmaMaps& maps) {
    STRATA_TRY(make_tensor_map(qkv, dtype, maps.values[0]));
    return dout == nullptr ? Status::ok() : make_tensor_map(*dout, dtype, maps.values[1]);
  }
};

/// Whether the architecture that is being compiled for has the instructions. No kernel is launched on others.
template <class Policy>
inline constexpr bool kArchSupported = true;
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
template <>
inline constexpr bool kArchSupported<WgmmaPolicy> = false;
#endif

/// The tile, head and sequence of a block. With a causal mask, the queries that see the most keys come first,
/// so that the last blocks to run are short.
struct TileCoord {
  std::int64_t tile, head, batch;
  __device__ TileCoord(std::int64_t tiles, std::int64_t heads, bool last_first)
      : tile(blockIdx.x % tiles), head(blockIdx.x / tiles % heads), batch(blockIdx.x / tiles / heads) {
    if (last_first) tile = tiles - 1 - tile;
  }
};

template <class Tile>
STRATA_HD std::int64_t tile_shared_bytes() {
  return typename Tile::SharedStorage(nullptr).arena.bytes();
}

template <class Policy, class Tile, class T>
__global__ void __launch_bounds__(KernelTraits<Policy>::template ForwardBlock<Tile>::kThreads,
                                  KernelTraits<Policy>::kMinBlocksPerSm)
    flash_forward_kernel(AttentionView<T> v, AlibiSlopes slopes, std::int64_t tiles, T* out, float* lse,
                         const __grid_constant__ typename KernelTraits<Policy>::TmaMaps tma_maps) {
  extern __shared__ __align__(1024) std::byte shared[];
  const TileCoord at(tiles, v.heads, v.causal);
  if constexpr (kArchSupported<Policy>)
    Tile::run(typename KernelTraits<Policy>::template ForwardBlock<Tile>(shared + tile_shared_bytes<Tile>(),
                                                                         tma_maps),
              shared, v, at.batch, at.head, at.tile * Tile::kRows, slopes(at.head), out, lse);
  else
    __trap();
}
template <class Policy, class Tile, class T>
__global__ void __launch_bounds__(KernelTraits<Policy>::kThreads, KernelTraits<Policy>::kMinBlocksPerSm)
    flash_backward_q_kernel(AttentionView<T> v, AlibiSlopes slopes, std::int64_t tiles, const float* lse,
                            const T* out, const T* dout, float* delta, T* dqkv,
                            const __grid_constant__ typename KernelTraits<Policy>::TmaMaps tma_maps) {
  extern __shared__ __align__(1024) std::byte shared[];
  const TileCoord at(tiles, v.heads, v.causal);
  if constexpr (kArchSupported<Policy>)
    Tile::run(typename KernelTraits<Policy>::ThreadBlock(shared + tile_shared_bytes<Tile>(), tma_maps),
              shared, v, at.batch, at.head, at.tile * Tile::kRows, slopes(at.head), lse, out, dout, delta,
              dqkv);
  else
    __trap();
}
template <class Policy, class Tile, class T>
__global__ void __launch_bounds__(KernelTraits<Policy>::kThreads, KernelTraits<Policy>::kMinBlocksPerSm)
    flash_backward_kv_kernel(AttentionView<T> v, AlibiSlopes slopes, std::int64_t tiles, const float* lse,
                             const T* dout, const float* delta, T* dqkv,
                             const __grid_constant__ typename KernelTraits<Policy>::TmaMaps tma_maps) {
  extern __shared__ __align__(1024) std::byte shared[];
  const TileCoord at(tiles, v.kv_heads, false);
  if constexpr (kArchSupported<Policy>)
    Tile::run(typename KernelTraits<Policy>::ThreadBlock(shared + tile_shared_bytes<Tile>(), tma_maps),
              shared, v, at.batch, at.head, at.tile * Tile::kRows, slopes, lse, dout, delta, dqkv);
  else
    __trap();
}

/// The kernels for one head dimension. In the forward a warp handles kM times 16 queries.
template <class T, int kD, class Policy, int kM>
struct Flash {
  static constexpr bool kIsWgmma = std::is_same_v<Policy, WgmmaPolicy>;
  using Forward = std::conditional_t<kIsWgmma, FlashForwardWgmma<T, kD>, FlashForward<T, kD, kM>>;
  using BackwardQ = FlashBackwardQ<T, kD, Policy>;
  using BackwardKV = FlashBackwardKV<T, kD, Policy>;
  static constexpr int kThreads = KernelTraits<Policy>::kThreads;

  using ForwardBlock = typename KernelTraits<Policy>::template ForwardBlock<Forward>;

  template <class Tile, class ThreadBlock = typename KernelTraits<Policy>::ThreadBlock>
  static std::int64_t shared_bytes() {
    return tile_shared_bytes<Tile>() + ThreadBlock::kBarrierBytes;
  }
  static bool fits() {
    return std::max({shared_bytes<Forward, ForwardBlock>(), shared_bytes<BackwardQ>(),
                     shared_bytes<BackwardKV>()}) <= max_shared_bytes_per_block();
  }
  static Status forward(const AttentionForwardArgs& a, const AlibiSlopes& slopes, cudaStream_t queue) {
    const AttentionView<T> v = attention_view<T>(a);
    const std::int64_t tiles = dispatch::ceil_div(v.seq, Forward::kRows),
                       batches = dispatch::row_count(a.qkv) / v.seq;
    typename KernelTraits<Policy>::TmaMaps tma_maps;
    STRATA_TRY(KernelTraits<Policy>::make_tma_maps(make_tma_tensor(v.qkv, batches, v.seq, v.width()), nullptr,
                                                   a.qkv.dtype, tma_maps));
    return launch_attention(&flash_forward_kernel<Policy, Forward, T>, batches * v.heads * tiles,
                            ForwardBlock::kThreads, shared_bytes<Forward, ForwardBlock>(), queue, v, slopes,
                            tiles, a.out.as<T>(), a.lse.as<float>(), tma_maps);
  }
  static Status backward(const AttentionBackwardArgs& a, const AlibiSlopes& slopes, cudaStream_t queue) {
    const AttentionView<T> v = attention_view<T>(a);
    const std::int64_t batches = dispatch::row_count(a.qkv) / v.seq,
                       query_tiles = dispatch::ceil_div(v.seq, BackwardQ::kRows),
                       key_tiles = dispatch::ceil_div(v.seq, BackwardKV::kRows);
    float* const delta = delta_of(a);
    const float* const lse = a.lse.as<float>();
    const T* const dout = a.dout.as<T>();
    const TmaTensor gradients = make_tma_tensor(dout, batches, v.seq, v.heads * v.d);
    typename KernelTraits<Policy>::TmaMaps tma_maps;
    STRATA_TRY(KernelTraits<Policy>::make_tma_maps(make_tma_tensor(v.qkv, batches, v.seq, v.width()),
                                                   &gradients, a.qkv.dtype, tma_maps));
    STRATA_TRY(launch_attention(&flash_backward_q_kernel<Policy, BackwardQ, T>,
                                batches * v.heads * query_tiles, kThreads, shared_bytes<BackwardQ>(), queue,
                                v, slopes, query_tiles, lse, static_cast<const T*>(a.out.as<T>()), dout,
                                delta, a.dqkv.as<T>(), tma_maps));
    return launch_attention(&flash_backward_kv_kernel<Policy, BackwardKV, T>,
                            batches * v.kv_heads * key_tiles, kThreads, shared_bytes<BackwardKV>(), queue, v,
                            slopes, key_tiles, lse, dout, static_cast<const float*>(delta), a.dqkv.as<T>(),
                            tma_maps);
  }
};

/// Returns `run(Flash)` for head dimensions that have kernels, `otherwise()` for all others.
template <class Otherwise, class Run>
auto dispatch_head_dim(DType dtype, std::int64_t d, AttentionBackend by, const Otherwise& otherwise,
                       const Run& run) {
  const bool by_groups = by == AttentionBackend::wgmma && cuda_has_wgmma();
  const auto of_type = [&]<class T>(std::type_identity<T>) -> decltype(otherwise()) {
    if (d == 64 && by_groups) return run(Flash<T, 64, WgmmaPolicy, 1>());
    if (d == 128 && by_groups) return run(Flash<T, 128, WgmmaPolicy, 1>());
    if (d == 64) return run(Flash<T, 64, MmaPolicy, 2>());
    if (d == 96) return run(Flash<T, 96, MmaPolicy, 2>());
    if (d == 128) return run(Flash<T, 128, MmaPolicy, 2>());
    return otherwise();
  };
  if (dtype == DType::bf16) return of_type(std::type_identity<bf16>());
  if (dtype == DType::f16) return of_type(std::type_identity<f16>());
  return otherwise();
}

Status unsupported_heads() {
  return Status::error(Code::internal,
                       "attention: the FlashAttention kernels do not support this head dimension and dtype");
}

}  // namespace

bool supports_flash_attention(DType dtype, std::int64_t d, AttentionBackend by) {
  return dispatch_head_dim(
      dtype, d, by, [] { return false; }, [](auto flash) { return flash.fits(); });
}
Status flash_attention_forward(const AttentionForwardArgs& a, const AlibiSlopes& slopes, cudaStream_t queue) {
  const std::int64_t d = head_dim(a.qkv, a.shape);
  return dispatch_head_dim(a.qkv.dtype, d, a.shape.backend, &unsupported_heads,
                           [&](auto flash) { return flash.forward(a, slopes, queue); });
}
Status flash_attention_backward(const AttentionBackwardArgs& a, const AlibiSlopes& slopes,
                                cudaStream_t queue) {
  const std::int64_t d = head_dim(a.qkv, a.shape);
  return dispatch_head_dim(a.qkv.dtype, d, a.shape.backend, &unsupported_heads,
                           [&](auto flash) { return flash.backward(a, slopes, queue); });
}

}  // namespace strata::kernels::detail

namespace strata::kernels {

bool cuda_has_wgmma() {
#ifdef STRATA_COMPILED_FOR_90A
  static const bool has = [] {
    int device = 0, major = 0, minor = 0;
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess)
      return major == 9 && minor == 0;
    (void)cudaGetLastError();
    return false;
  }();
  return has;
#else
  return false;
#endif
}

}  // namespace strata::kernels
