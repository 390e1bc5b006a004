#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cuda_stream.h"
#include "nccl/cuda/cuda_nccl_device.h"

namespace strata::detail {
namespace {

constexpr int kThreads = 256;

template <bool kAligned, class T, class Op>
__global__ void __launch_bounds__(kThreads) reduce_vectors(Piece<T> piece, std::int64_t n_vectors) {
  if (const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n_vectors)
    reduce_vector<kAligned, T, Op>(piece, i);
}

}  // namespace

Status reduce_on_gpu(const PieceArgs& args, Stream& stream) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, cuda_stream(stream));
  return with_types(args.dtype, args.reduction, [&]<class T, class Op>(T, Op) -> Status {
    const Piece<T> piece = piece_of<T>(args);
    const std::int64_t n = n_vectors(piece);
    const auto kernel = is_aligned(args) ? reduce_vectors<true, T, Op> : reduce_vectors<false, T, Op>;
    const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
    kernel<<<blocks, kThreads, 0, queue>>>(piece, n);
    STRATA_CUDA_TRY(cudaGetLastError());
    return Status::ok();
  });
}

}  // namespace strata::detail
