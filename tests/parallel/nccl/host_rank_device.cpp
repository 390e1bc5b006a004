// Ranks on host backends: a stream of NCCL is a Stream, and kernels are host calls.
#include <strata/runtime/str.h>

#include "parallel/nccl/nccl_ranks.h"

namespace strata::test {
namespace {

struct QueuedWork {
  void (*work)(void*);
  void* argument;
};
int launch(void* stream, void (*work)(void*), void* argument) {
  auto& to = *static_cast<Stream*>(stream);
  const auto run = [](const QueuedWork& queued, ThreadPool&) { queued.work(queued.argument); };
  const HostCall call("nccl kernel", run, QueuedWork{work, argument});
  return to.backend()->host_call_async(call, to).is_ok() ? 0 : 1;
}

void reduce(const detail::PieceArgs& args, ThreadPool&) {
  detail::with_types(args.dtype, args.reduction, [&]<class T, class Op>(T, Op) {
    const detail::Piece<T> piece = detail::piece_of<T>(args);
    for (std::int64_t i = 0; i < detail::n_vectors(piece); ++i)
      detail::is_aligned(args) ? detail::reduce_vector<true, T, Op>(piece, i)
                               : detail::reduce_vector<false, T, Op>(piece, i);
  });
}

class HostNcclDevice final : public detail::NcclDevice {
 public:
  explicit HostNcclDevice(int rank) : rank_(rank) {}
  Result<void*> stream_handle(Stream& stream) const override { return static_cast<void*>(&stream); }
  Status reduce_async(const detail::PieceArgs& args, Stream& stream) const override {
    HostCall call("reduce", reduce, args);
    call.reads(args.own, args.bytes).writes(args.into, args.bytes);
    return stream.backend()->host_call_async(call, stream);
  }
  Result<detail::GpuIdentity> identity(Stream&) const override {
    return detail::GpuIdentity{str("GPU of rank ", rank_), 1};
  }

 private:
  const int rank_;
};

}  // namespace

RankDevice make_rank_device(int rank, StreamSchedule schedule) {
  fake_nccl().set_launch(launch);
  RankDevice made;
  made.pool = must(ThreadPool::create(1));
  made.clock = std::make_unique<SteadyClock>();
  made.backend = must(create_host_backend(
      {.schedule = schedule, .check = schedule == StreamSchedule::latest_legal}, *made.pool, *made.clock));
  made.device = std::make_unique<HostNcclDevice>(rank);
  return made;
}

}  // namespace strata::test
