#include "step/gradient_sums.h"

#include <strata/simd/gradient.h>
#include <strata/simd/norm.h>

#include "plan/chunk_tables.h"
#include "step/device_work.h"

namespace strata::detail {
namespace {

struct AccumulateState {
  float* sum;
  Addends addends;
  bool first;
  const TensorBlock* blocks;
  std::int64_t n_blocks;
};
void run_accumulate(const AccumulateState& s, ThreadPool& pool) {
  pool.parallel_for(s.n_blocks, [&](std::int64_t i) {
    const TensorBlock& b = s.blocks[i];
    const std::size_t at = static_cast<std::size_t>(b.offset) * size_of(s.addends.dtype);
    for (std::int32_t n = 0; n < s.addends.ranks.ranks; ++n)
      simd::accumulate({s.sum + b.offset, static_cast<std::size_t>(b.n)}, s.addends.dtype,
                       s.addends.nth(n).data + at, s.first && n == 0);
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
    simd::square_sum_partials(s.dtype, s.sum + static_cast<std::size_t>(b.offset) * size_of(s.dtype), b.n,
                              s.norm_partials + b.first_partial);
  });
}

bool is_of_device(const Stream& stream) noexcept { return stream.role() != StreamRole::cpu; }

// In a simulation, work on the device is a host call with a cost, like that of the CPU.
bool runs_on_device(const StateContext& context, const Stream& stream) {
  return is_of_device(stream) && context.costs() == nullptr;
}

}  // namespace

Status queue_accumulate(StateContext& context, ChunkId chunk, BufferView into, const Addends& addends,
                        bool first, Stream& stream) {
  if (runs_on_device(context, stream)) {
    for (std::int32_t n = 0; n < addends.ranks.ranks; ++n)
      STRATA_TRY(queue_device_accumulate(context, chunk, into, addends.nth(n), first && n == 0, stream));
    return {};
  }
  const std::vector<TensorBlock>& blocks = context.tables().accumulated(chunk);
  HostCall call("accumulate", &run_accumulate,
                AccumulateState{reinterpret_cast<float*>(into.data), addends, first, blocks.data(),
                                static_cast<std::int64_t>(blocks.size())});
  call.reads(addends.all.data, addends.all.bytes).writes(into.data, into.bytes);
  if (context.costs() != nullptr)
    call.paced(
        context.costs()->sweep_ns(addends.all.bytes + (first ? 1 : 2) * into.bytes, is_of_device(stream)));
  return context.backend().host_call_async(call, stream);
}

BufferView summed_part(const StateContext& context, ChunkId chunk, BufferView sum) {
  const ChunkLayout& layout = context.plan().layout;
  const ElemRange held = layout.range(chunk, Payload::accum), summed = layout.summed(chunk);
  const std::size_t width = size_of(layout.group_of(chunk).accum);
  return sum.part(static_cast<std::size_t>(summed.begin - held.begin) * width,
                  static_cast<std::size_t>(summed.size()) * width);
}

Status queue_norm_partials(StateContext& context, ChunkId chunk, BufferView sum, Stream& stream) {
  const BufferView part = summed_part(context, chunk, sum);
  if (runs_on_device(context, stream)) return queue_device_norm_partials(context, chunk, part, stream);
  const std::vector<TensorBlock>& blocks = context.tables().summed(chunk);
  HostCall call(
      "norm partials", &run_norm_partials,
      NormPartialsState{part.data, context.plan().layout.group_of(chunk).accum, context.norm_partials(),
                        blocks.data(), static_cast<std::int64_t>(blocks.size())});
  call.reads(part.data, part.bytes);
  if (context.costs() != nullptr) call.paced(context.costs()->sweep_ns(part.bytes, is_of_device(stream)));
  // These partials are interleaved with those of other chunks, and there may be too many ranges to declare.
  // What matters is that the host waits before it adds them up.
  for (const TensorBlock& block : blocks) {
    if (call.accesses().size() + 1 >= HostCall::kMaxAccesses) break;
    call.writes(context.norm_partials() + block.first_partial,
                sizeof(double) * static_cast<std::size_t>(simd::norm_partial_count(block.n)));
  }
  return context.backend().host_call_async(call, stream);
}

}  // namespace strata::detail
