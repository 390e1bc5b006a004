// Ranks on the CUDA backend over the fake CUDA runtime, whose streams are threads: the transport as it is on
// a GPU, but for the kernel, which runs on the host.
#include <cuda_runtime_api.h>

#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/str.h>

#include "backend/cuda/cuda_stream.h"
#include "nccl/cuda/cuda_nccl_device.h"
#include "parallel/nccl/nccl_ranks.h"

namespace strata::detail {

// Instead of the one in reduce_piece.cu, which is then not linked.
Status reduce_on_gpu(const PieceArgs& args, Stream& stream) {
  STRATA_TRY_ASSIGN(const cudaStream_t queue, cuda_stream(stream));
  const auto run = [](void* state) {
    const std::unique_ptr<PieceArgs> queued(static_cast<PieceArgs*>(state));
    with_types(queued->dtype, queued->reduction, [&]<class T, class Op>(T, Op) {
      const Piece<T> piece = piece_of<T>(*queued);
      for (std::int64_t i = 0; i < n_vectors(piece); ++i) reduce_vector<false, T, Op>(piece, i);
    });
  };
  const bool queued = cudaLaunchHostFunc(queue, run, new PieceArgs(args)) == cudaSuccess;
  return queued ? Status() : Status::error(Code::internal, "the kernel is not launched");
}

}  // namespace strata::detail

namespace strata::test {
namespace {

int launch(void* stream, void (*work)(void*), void* argument) {
  return cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), work, argument) == cudaSuccess ? 0 : 1;
}

/// The fake runtime has one GPU, which would be that of all ranks.
class FakeGpu final : public detail::CudaNcclDevice {
 public:
  explicit FakeGpu(int rank) : rank_(rank) {}
  Result<detail::GpuIdentity> identity(Stream& stream) const override {
    STRATA_TRY_ASSIGN(detail::GpuIdentity identity, CudaNcclDevice::identity(stream));
    identity.bus_id += str(", ", rank_);
    return identity;
  }

 private:
  const int rank_;
};

}  // namespace

RankDevice make_rank_device(int rank, StreamSchedule) {
  fake_nccl().set_launch(launch);
  RankDevice made;
  made.pool = must(ThreadPool::create(1));
  made.backend = must(create_cuda_backend({}, *made.pool));
  made.device = std::make_unique<FakeGpu>(rank);
  made.on_fake_cuda = true;
  return made;
}

}  // namespace strata::test
