#include <strata/dispatch/cuda/launch.h>
#include <strata/dispatch/cuda/packs.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/experts/expert_linear.h>

#include "cuda/experts/expert_products.h"
#include "cuda/warps.h"

// A thread block per tile of 128 rows and columns. There are as many blocks as tiles of rows at most,
// whatever the offsets are, and those without a tile end at once, so that the host never waits for the
// offsets.
namespace strata::kernels::cuda {
namespace {

using detail::ExpertOffsets;
using detail::ExpertRowProduct;
using detail::ExpertWeightGradient;
using detail::kExpertTile;
using detail::ProductShared;
using Block = detail::BlockWarps<detail::kExpertWarps>;

template <class T, bool kTensorCores, bool kForward>
__global__ void __launch_bounds__(Block::kThreads) row_tiles(ExpertRowProduct<T> p, unsigned across) {
  __shared__ ProductShared<T, kTensorCores, false, !kForward> shared;
  detail::expert_row_tile<T, kTensorCores, kForward>(Block(), shared, p, blockIdx.x / across,
                                                     std::int64_t{blockIdx.x % across} * kExpertTile);
}
template <class T, bool kTensorCores, class Out>
__global__ void __launch_bounds__(Block::kThreads)
    weight_tiles(ExpertWeightGradient<T, Out> p, unsigned across) {
  __shared__ ProductShared<T, kTensorCores, true, true> shared;
  detail::expert_weight_tile<T, kTensorCores>(Block(), shared, p, blockIdx.y,
                                              std::int64_t{blockIdx.x / across} * kExpertTile,
                                              std::int64_t{blockIdx.x % across} * kExpertTile);
}
template <class T, class Out>
__global__ void __launch_bounds__(dispatch::kThreads)
    bias_sums(ExpertOffsets offsets, const T* dy, Out* db, std::int64_t n, bool accumulate) {
  const std::int64_t column = dispatch::thread_index(), e = blockIdx.y;
  if (column >= n) return;
  const float sum = detail::expert_bias_sum(dy, offsets.begin(e), offsets.begin(e + 1), n, column);
  Out& into = db[e * n + column];
  into = from_f32<Out>(accumulate ? to_f32(into) + sum : sum);
}

/// Whether tensor cores have the product: operands of 16 bits, in pieces of 16 bytes.
template <class T>
bool has_tensor_cores(std::int64_t n, std::int64_t k, const TensorView& a, const TensorView& b) {
  return sizeof(T) == 2 && n % 8 == 0 && k % 8 == 0 && dispatch::are_pack_aligned(a.data, b.data);
}

template <bool kForward, class T>
void launch_rows(const ExpertRowProduct<T>& p, bool tensor_cores, cudaStream_t queue) {
  const unsigned across = dispatch::num_blocks(p.columns, kExpertTile),
                 blocks = static_cast<unsigned>(p.offsets.most_tiles()) * across;
  if constexpr (sizeof(T) == 2) {
    if (tensor_cores) {
      row_tiles<T, true, kForward><<<blocks, Block::kThreads, 0, queue>>>(p, across);
      return;
    }
  }
  row_tiles<T, false, kForward><<<blocks, Block::kThreads, 0, queue>>>(p, across);
}

template <bool kForward>
Status multiply_rows(Stream& stream, const TensorView& in, const TensorView& w, const TensorView& bias,
                     const TensorView& offsets, std::int64_t first, const TensorView& out) {
  const std::int64_t experts = w.shape.dims[0], inner = dispatch::row_length(in),
                     columns = dispatch::row_length(out);
  if (experts == 0 || out.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(in.dtype, [&]<class T>(std::type_identity<T>) {
    launch_rows<kForward>(
        ExpertRowProduct<T>{.offsets = {offsets.as<std::int32_t>(), first, experts, dispatch::row_count(in)},
                            .in = in.as<T>(),
                            .w = w.as<T>(),
                            .bias = dispatch::is_present(bias) ? bias.as<T>() : nullptr,
                            .out = out.as<T>(),
                            .inner = inner,
                            .columns = columns},
        has_tensor_cores<T>(inner, columns, in, w), queue);
  });
}

template <class T, class Out>
void launch_weight(const ExpertLinearBackwardWeightArgs& a, cudaStream_t queue) {
  const std::int64_t experts = a.dw.shape.dims[0];
  const ExpertWeightGradient<T, Out> p = {
      .offsets = {a.offsets.as<std::int32_t>(), a.first, experts, dispatch::row_count(a.dy)},
      .dy = a.dy.as<T>(),
      .x = a.x.as<T>(),
      .dw = a.dw.as<Out>(),
      .n = dispatch::row_length(a.dy),
      .k = dispatch::row_length(a.x),
      .accumulate = a.accumulate};
  const unsigned across = dispatch::num_blocks(p.k, kExpertTile);
  const dim3 grid = {dispatch::num_blocks(p.n, kExpertTile) * across, static_cast<unsigned>(experts)};
  if constexpr (sizeof(T) == 2) {
    if (has_tensor_cores<T>(p.n, p.k, a.dy, a.x)) {
      weight_tiles<T, true><<<grid, Block::kThreads, 0, queue>>>(p, across);
      return;
    }
  }
  weight_tiles<T, false><<<grid, Block::kThreads, 0, queue>>>(p, across);
}

template <class T, class Out>
void launch_bias(const ExpertLinearBackwardBiasArgs& a, cudaStream_t queue) {
  const std::int64_t experts = a.db.shape.dims[0], n = dispatch::row_length(a.dy);
  const dim3 grid = {dispatch::num_blocks(n, dispatch::kThreads), static_cast<unsigned>(experts)};
  bias_sums<<<grid, dispatch::kThreads, 0, queue>>>(
      ExpertOffsets{a.offsets.as<std::int32_t>(), a.first, experts, dispatch::row_count(a.dy)}, a.dy.as<T>(),
      a.db.as<Out>(), n, a.accumulate);
}

}  // namespace

Status expert_linear_forward(Backend&, Stream& stream, const ExpertLinearForwardArgs& a) {
  return multiply_rows<true>(stream, a.x, a.w, a.b, a.offsets, a.first, a.y);
}

Status expert_linear_backward_input(Backend&, Stream& stream, const ExpertLinearBackwardInputArgs& a) {
  return multiply_rows<false>(stream, a.dy, a.w, {}, a.offsets, a.first, a.dx);
}

Status expert_linear_backward_weight(Backend&, Stream& stream, const ExpertLinearBackwardWeightArgs& a) {
  if (a.dw.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    if (a.dw.dtype == DType::f32)
      launch_weight<T, float>(a, queue);
    else
      launch_weight<T, T>(a, queue);
  });
}

Status expert_linear_backward_bias(Backend&, Stream& stream, const ExpertLinearBackwardBiasArgs& a) {
  if (a.db.n_elems() == 0) return Status::ok();
  STRATA_TRY_ASSIGN(const cudaStream_t queue, strata::detail::cuda_stream(stream));
  return dispatch::dispatch_launch(a.dy.dtype, [&]<class T>(std::type_identity<T>) {
    if (a.db.dtype == DType::f32)
      launch_bias<T, float>(a, queue);
    else
      launch_bias<T, T>(a, queue);
  });
}

}  // namespace strata::kernels::cuda
