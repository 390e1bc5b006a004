#include "step/gradient_accumulation.h"

#include <strata/cpuopt/gradient.h>
#include <strata/cpuopt/norm.h>

#include "plan/chunk_tables.h"
#include "step/device_work.h"

namespace strata::detail {
namespace {

struct AccumulateState {
  float* sum;
  const std::byte* grad;
  DType dtype;  // of grad
  bool first;   // overwrite the sum
  const TensorBlock* blocks;
  std::int64_t n_blocks;
};
void run_accumulate(const AccumulateState& s, ThreadPool& pool) {
  pool.parallel_for(s.n_blocks, [&](std::int64_t i) {
    const TensorBlock& b = s.blocks[i];
    cpuopt::accumulate({s.sum + b.offset, static_cast<std::size_t>(b.n)}, s.dtype,
                       s.grad + static_cast<std::size_t>(b.offset) * size_of(s.dtype), s.first);
  });
}

struct NormPartialsState {
  const std::byte* sum;
  DType dtype;
  double* norm_partials;
  const TensorBlock* blocks;
  std::int64_t n_blocks;
};
void run_norm_partials(const NormPartialsState& s, ThreadPool& pool) {
  pool.parallel_for(s.n_blocks, [&](std::int64_t i) {
    const TensorBlock& b = s.blocks[i];
    cpuopt::square_sum_partials(s.dtype, s.sum + static_cast<std::size_t>(b.offset) * size_of(s.dtype), b.n,
                                s.norm_partials + b.first_partial);
  });
}

// In a simulation, work on the device is a host call with a cost, like that of the CPU.
bool runs_on_device(const StateContext& context, const Stream& stream) {
  return stream.role() == StreamRole::compute && context.costs() == nullptr;
}

// Whether a micro-batch's gradient has the dtype of the accumulated gradient.
bool sum_has_grad_dtype(const StateContext& context, ChunkId chunk) {
  const GroupKey& group = context.plan().layout.group_of(chunk);
  return group.accum == group.grad;
}

Status queue_accumulate(StateContext& context, ChunkId chunk, const ChunkPin& sum, const ChunkPin& grad,
                        bool first, Stream& stream) {
  if (runs_on_device(context, stream))
    return queue_device_accumulate(context, chunk, sum.view(), grad.view(), first);
  const std::vector<TensorBlock>& blocks = context.tables().blocks[chunk];
  HostCall call("accumulate", &run_accumulate,
                AccumulateState{reinterpret_cast<float*>(sum.view().data), grad.view().data,
                                context.plan().layout.group_of(chunk).grad, first, blocks.data(),
                                static_cast<std::int64_t>(blocks.size())});
  call.reads(grad.view().data, grad.view().bytes).writes(sum.view().data, sum.view().bytes);
  if (context.costs() != nullptr)
    call.paced(context.costs()->sweep_ns(grad.view().bytes + (first ? 1 : 2) * sum.view().bytes,
                                         stream.role() == StreamRole::compute));
  return context.backend().host_call_async(call, stream);
}

Status queue_norm_partials(StateContext& context, ChunkId chunk, const ChunkPin& sum, Stream& stream) {
  if (runs_on_device(context, stream)) return queue_device_norm_partials(context, chunk, sum.view());
  const std::vector<TensorBlock>& blocks = context.tables().blocks[chunk];
  HostCall call(
      "norm partials", &run_norm_partials,
      NormPartialsState{sum.view().data, context.plan().layout.group_of(chunk).accum, context.norm_partials(),
                        blocks.data(), static_cast<std::int64_t>(blocks.size())});
  call.reads(sum.view().data, sum.view().bytes);
  if (context.costs() != nullptr)
    call.paced(context.costs()->sweep_ns(sum.view().bytes, stream.role() == StreamRole::compute));
  // These partials are interleaved with those of other chunks, and there may be too many ranges to declare.
  // What matters is that the host waits before it adds them up.
  for (const TensorBlock& block : blocks) {
    if (call.accesses().size() + 1 >= HostCall::kMaxAccesses) break;
    call.writes(context.norm_partials() + block.first_partial,
                sizeof(double) * static_cast<std::size_t>(cpuopt::norm_partial_count(block.n)));
  }
  return context.backend().host_call_async(call, stream);
}

// The first micro-batch's gradient becomes the sum, in place if it has the sum's dtype.
Status accumulate_on_device(StateContext& context, ChunkId chunk, bool first, bool last) {
  ChunkManager& chunks = context.chunks();
  Stream& stream = context.streams().compute;
  const PayloadKey grad_key{chunk, Payload::grad}, sum_key{chunk, Payload::accum};
  if (first && sum_has_grad_dtype(context, chunk)) {
    STRATA_TRY(chunks.transfer(grad_key, sum_key, Tier::device));
  } else {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, stream));
    STRATA_TRY_ASSIGN(const ChunkPin sum,
                      chunks.pin(sum_key, Tier::device, first ? Intent::overwrite : Intent::update, stream));
    STRATA_TRY(queue_accumulate(context, chunk, sum, grad, first, stream));
  }
  STRATA_TRY(chunks.drop(grad_key));
  if (!last) return Status::ok();
  STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::device, Intent::read, stream));
  return queue_norm_partials(context, chunk, sum, stream);
}

// The first micro-batch's gradient is copied straight to the sum's place if it has the sum's dtype. Others
// are copied to RAM by the pin and added to the sum by the CPU, in micro-batch order.
Status accumulate_in_ram(StateContext& context, ChunkId chunk, bool first, bool last) {
  ChunkManager& chunks = context.chunks();
  Stream &cpu = context.streams().cpu, &d2h = context.streams().d2h;
  const PayloadKey grad_key{chunk, Payload::grad}, sum_key{chunk, Payload::accum};
  if (first && sum_has_grad_dtype(context, chunk)) {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, d2h));
    STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::pinned, Intent::overwrite, d2h));
    STRATA_TRY(context.backend().copy_async(sum.view(), grad.view(), d2h));
  } else {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::pinned, Intent::read, cpu));
    STRATA_TRY_ASSIGN(const ChunkPin sum,
                      chunks.pin(sum_key, Tier::pinned, first ? Intent::overwrite : Intent::update, cpu));
    STRATA_TRY(queue_accumulate(context, chunk, sum, grad, first, cpu));
  }
  STRATA_TRY(chunks.drop(grad_key));
  if (last) {
    STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::pinned, Intent::read, cpu));
    STRATA_TRY(queue_norm_partials(context, chunk, sum, cpu));
  }
  return chunks.write_back(sum_key);
}

}  // namespace

Status accumulate_gradient(StateContext& context, ChunkId chunk, bool first, bool last) {
  return context.plan().placement.home({chunk, Payload::accum}) == Tier::device
             ? accumulate_on_device(context, chunk, first, last)
             : accumulate_in_ram(context, chunk, first, last);
}

}  // namespace strata::detail
