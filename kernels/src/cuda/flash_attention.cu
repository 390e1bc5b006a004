#include <algorithm>

#include "cuda/attention_launch.h"
#include "cuda/flash.h"
#include "cuda/flash_forward.h"
#include "cuda/flash_keys.h"
#include "cuda/flash_queries.h"
#include "cuda/tensor_map.h"

namespace strata::kernels::detail {
namespace {

/// Blocks: how many shall be on a multiprocessor at once, and what brings their operands. Threads of warps do
/// it by themselves.
template <class By>
struct Block {
  struct Sources {};
  struct Crew : BlockWarps<By::kWarps> {
    static constexpr int kArrivalBytes = 0;
    __device__ Crew(std::byte*, const Sources&) {}
  };
  static constexpr int kThreads = Crew::kThreads, kAtOnce = 2;
  static Status sources(const BoxedMatrix&, const BoxedMatrix*, DType, Sources&) { return Status::ok(); }
};
template <>
struct Block<ByGroups> {
  using Crew = BlockWithBoxes<ByGroups::kWarps, CUtensorMap>;
  using Sources = MapsOf<CUtensorMap>;
  static constexpr int kThreads = Crew::kThreads, kAtOnce = 1;
  static Status sources(const BoxedMatrix& qkv, const BoxedMatrix* dout, DType dtype, Sources& maps) {
    STRATA_TRY(make_tensor_map(qkv, dtype, maps.of[0]));
    return dout == nullptr ? Status::ok() : make_tensor_map(*dout, dtype, maps.of[1]);
  }
};

/// Whether this is compiled for GPUs that have the instructions. Nothing is launched on others.
template <class By>
inline constexpr bool kCompiles = true;
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
template <>
inline constexpr bool kCompiles<ByGroups> = false;
#endif

/// The tile, head and sequence of a block. Causal queries that see most come first, so that the last blocks
/// to run are short ones.
struct Place {
  std::int64_t tile, head, batch;
  __device__ Place(std::int64_t tiles, std::int64_t heads, bool last_first)
      : tile(blockIdx.x % tiles), head(blockIdx.x / tiles % heads), batch(blockIdx.x / tiles / heads) {
    if (last_first) tile = tiles - 1 - tile;
  }
};

template <class Tile>
STRATA_HD std::int64_t bytes_of() {
  return typename Tile::Memory(nullptr).memory.bytes();
}

template <class By, class Tile, class T>
__global__ void __launch_bounds__(Block<By>::kThreads, Block<By>::kAtOnce)
    flash_forward(AttentionView<T> v, Slopes slopes, std::int64_t tiles, T* out, float* lse,
                  const __grid_constant__ typename Block<By>::Sources sources) {
  extern __shared__ __align__(1024) std::byte shared[];
  const Place at(tiles, v.heads, v.causal);
  if constexpr (kCompiles<By>)
    Tile::run(typename Block<By>::Crew(shared + bytes_of<Tile>(), sources), shared, v, at.batch, at.head,
              at.tile * Tile::kRows, slopes(at.head), out, lse);
  else
    __trap();
}
template <class By, class Tile, class T>
__global__ void __launch_bounds__(Block<By>::kThreads, Block<By>::kAtOnce)
    flash_queries(AttentionView<T> v, Slopes slopes, std::int64_t tiles, const float* lse, const T* dout,
                  float* centers, T* dqkv, const __grid_constant__ typename Block<By>::Sources sources) {
  extern __shared__ __align__(1024) std::byte shared[];
  const Place at(tiles, v.heads, v.causal);
  if constexpr (kCompiles<By>)
    Tile::run(typename Block<By>::Crew(shared + bytes_of<Tile>(), sources), shared, v, at.batch, at.head,
              at.tile * Tile::kRows, slopes(at.head), lse, dout, centers, dqkv);
  else
    __trap();
}
template <class By, class Tile, class T>
__global__ void __launch_bounds__(Block<By>::kThreads, Block<By>::kAtOnce)
    flash_keys(AttentionView<T> v, Slopes slopes, std::int64_t tiles, const float* lse, const T* dout,
               const float* centers, T* dqkv, const __grid_constant__ typename Block<By>::Sources sources) {
  extern __shared__ __align__(1024) std::byte shared[];
  const Place at(tiles, v.kv_heads, false);
  if constexpr (kCompiles<By>)
    Tile::run(typename Block<By>::Crew(shared + bytes_of<Tile>(), sources), shared, v, at.batch, at.head,
              at.tile * Tile::kRows, slopes, lse, dout, centers, dqkv);
  else
    __trap();
}

/// Heads of one length; kM times 16 queries are a warp's in forward.
template <class T, int kD, class By, int kM>
struct Flash {
  using Forward = FlashForward<T, kD, kM, By>;
  using Queries = FlashQueries<T, kD, By>;
  using Keys = FlashKeys<T, kD, By>;
  static constexpr int kThreads = Block<By>::kThreads;

  template <class Tile>
  static std::int64_t shared_bytes() {
    return bytes_of<Tile>() + Block<By>::Crew::kArrivalBytes;
  }
  static bool fits() {
    return std::max({shared_bytes<Forward>(), shared_bytes<Queries>(), shared_bytes<Keys>()}) <=
           most_shared_bytes();
  }
  static Status forward(const AttentionForwardArgs& a, const Slopes& slopes, cudaStream_t queue) {
    const AttentionView<T> v = attention_view<T>(a);
    const std::int64_t tiles = ceil_div(v.seq, Forward::kRows), batches = row_count(a.qkv) / v.seq;
    typename Block<By>::Sources sources;
    STRATA_TRY(Block<By>::sources(boxed(v.qkv, batches, v.seq, v.width()), nullptr, a.qkv.dtype, sources));
    return launch_attention(&flash_forward<By, Forward, T>, batches * v.heads * tiles, kThreads,
                            shared_bytes<Forward>(), queue, v, slopes, tiles, a.out.as<T>(),
                            a.lse.as<float>(), sources);
  }
  static Status backward(const AttentionBackwardArgs& a, const Slopes& slopes, cudaStream_t queue) {
    const AttentionView<T> v = attention_view<T>(a);
    const std::int64_t batches = row_count(a.qkv) / v.seq, query_tiles = ceil_div(v.seq, Queries::kRows),
                       key_tiles = ceil_div(v.seq, Keys::kRows);
    auto* const centers = reinterpret_cast<float*>(a.workspace.data);
    const float* const lse = a.lse.as<float>();
    const T* const dout = a.dout.as<T>();
    const BoxedMatrix gradients = boxed(dout, batches, v.seq, v.heads * v.d);
    typename Block<By>::Sources sources;
    STRATA_TRY(Block<By>::sources(boxed(v.qkv, batches, v.seq, v.width()), &gradients, a.qkv.dtype, sources));
    STRATA_TRY(launch_attention(&flash_queries<By, Queries, T>, batches * v.heads * query_tiles, kThreads,
                                shared_bytes<Queries>(), queue, v, slopes, query_tiles, lse, dout, centers,
                                a.dqkv.as<T>(), sources));
    return launch_attention(&flash_keys<By, Keys, T>, batches * v.kv_heads * key_tiles, kThreads,
                            shared_bytes<Keys>(), queue, v, slopes, key_tiles, lse, dout,
                            static_cast<const float*>(centers), a.dqkv.as<T>(), sources);
  }
};

/// What `run(Flash)` returns for such heads; what `otherwise()` does for those that are not.
template <class Otherwise, class Run>
auto with_heads(DType dtype, std::int64_t d, AttentionBackend by, const Otherwise& otherwise,
                const Run& run) {
  const bool by_groups = by == AttentionBackend::wgmma && cuda_has_wgmma();
  const auto of_type = [&]<class T>(std::type_identity<T>) -> decltype(otherwise()) {
    if (d == 64 && by_groups) return run(Flash<T, 64, ByGroups, 1>());
    if (d == 128 && by_groups) return run(Flash<T, 128, ByGroups, 1>());
    if (d == 64) return run(Flash<T, 64, ByWarps, 2>());
    if (d == 96) return run(Flash<T, 96, ByWarps, 2>());
    if (d == 128) return run(Flash<T, 128, ByWarps, 2>());
    return otherwise();
  };
  if (dtype == DType::bf16) return of_type(std::type_identity<bf16>());
  if (dtype == DType::f16) return of_type(std::type_identity<f16>());
  return otherwise();
}

Status none_of_these() { return Status::error(Code::internal, "attention: not heads of these kernels"); }

}  // namespace

bool takes_flash_attention(DType dtype, std::int64_t d, AttentionBackend by) {
  return with_heads(
      dtype, d, by, [] { return false; }, [](auto flash) { return flash.fits(); });
}
Status flash_attention_forward(const AttentionForwardArgs& a, const Slopes& slopes, cudaStream_t queue) {
  const std::int64_t d = row_length(a.qkv) / (a.shape.heads + 2 * a.shape.kv_heads);
  return with_heads(a.qkv.dtype, d, a.shape.backend, &none_of_these,
                    [&](auto flash) { return flash.forward(a, slopes, queue); });
}
Status flash_attention_backward(const AttentionBackwardArgs& a, const Slopes& slopes, cudaStream_t queue) {
  const std::int64_t d = row_length(a.qkv) / (a.shape.heads + 2 * a.shape.kv_heads);
  return with_heads(a.qkv.dtype, d, a.shape.backend, &none_of_these,
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
