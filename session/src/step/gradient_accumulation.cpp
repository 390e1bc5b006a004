#include "step/gradient_accumulation.h"

#include "ranks/gradient_reduction.h"
#include "step/gradient_sums.h"

namespace strata::detail {
namespace {

// Whether a micro-batch's gradient has the dtype of the accumulated gradient.
bool sum_has_grad_dtype(const StateContext& context, ChunkId chunk) {
  const GroupKey& group = context.plan().layout.group_of(chunk);
  return group.accum == group.grad;
}

// The part of the whole chunk's gradient that the rank sums: all of it, unless the program has summed all
// ranks'.
BufferView summed_here(const StateContext& context, ChunkId chunk, const ChunkPin& grad) {
  const ChunkLayout& layout = context.plan().layout;
  const ElemRange held = layout.range(chunk, Payload::accum);
  const std::size_t width = size_of(layout.group_of(chunk).grad);
  return grad.view().part(static_cast<std::size_t>(held.begin) * width,
                          static_cast<std::size_t>(held.size()) * width);
}

bool sums_all(const StateContext& context, ChunkId chunk) {
  return context.plan().layout.range(chunk, Payload::accum).size() ==
         context.plan().layout.chunk(chunk).n_elems;
}

Addends single(const StateContext& context, ChunkId chunk, const ChunkPin& grad) {
  return {summed_here(context, chunk, grad), context.plan().layout.group_of(chunk).grad};
}

// The first micro-batch's gradient becomes the sum, in place if it has the sum's dtype.
Status accumulate_on_device(StateContext& context, ChunkId chunk, bool first) {
  ChunkManager& chunks = context.chunks();
  Stream& stream = context.streams().compute;
  const PayloadKey grad_key{chunk, Payload::grad}, sum_key{chunk, Payload::accum};
  if (first && sum_has_grad_dtype(context, chunk) && sums_all(context, chunk)) {
    STRATA_TRY(chunks.transfer(grad_key, sum_key, Tier::device));
  } else {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, stream));
    STRATA_TRY_ASSIGN(const ChunkPin sum,
                      chunks.pin(sum_key, Tier::device, first ? Intent::overwrite : Intent::update, stream));
    STRATA_TRY(
        first && sum_has_grad_dtype(context, chunk)
            ? context.backend().copy_async(sum.view(), summed_here(context, chunk, grad), stream)
            : queue_accumulate(context, chunk, sum.view(), single(context, chunk, grad), first, stream));
  }
  return chunks.drop(grad_key);
}

// The first micro-batch's gradient is copied straight to the sum's place if it has the sum's dtype. Others
// are copied to RAM by the pin and added to the sum by the CPU, in micro-batch order.
Status accumulate_in_ram(StateContext& context, ChunkId chunk, bool first) {
  ChunkManager& chunks = context.chunks();
  Stream &cpu = context.streams().cpu, &d2h = context.streams().d2h;
  const PayloadKey grad_key{chunk, Payload::grad}, sum_key{chunk, Payload::accum};
  if (first && sum_has_grad_dtype(context, chunk)) {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, d2h));
    STRATA_TRY_ASSIGN(const ChunkPin sum, chunks.pin(sum_key, Tier::pinned, Intent::overwrite, d2h));
    STRATA_TRY(context.backend().copy_async(sum.view(), summed_here(context, chunk, grad), d2h));
  } else {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::pinned, Intent::read, cpu));
    STRATA_TRY_ASSIGN(const ChunkPin sum,
                      chunks.pin(sum_key, Tier::pinned, first ? Intent::overwrite : Intent::update, cpu));
    STRATA_TRY(queue_accumulate(context, chunk, sum.view(), single(context, chunk, grad), first, cpu));
  }
  return chunks.drop(grad_key);
}

}  // namespace

Status accumulate_gradient(StateContext& context, ChunkId chunk, bool first, bool last) {
  const bool on_device = context.plan().placement.home({chunk, Payload::accum}) == Tier::device;
  const Tier tier = on_device ? Tier::device : Tier::pinned;
  // Work that waits for an exchange is not queued on the compute stream, where the next instruction would
  // wait, too.
  Stream& of_device = context.groups() != nullptr ? context.streams().collective : context.streams().compute;
  Stream& stream = on_device ? of_device : context.streams().cpu;
  if (context.plan().layout.has(chunk, Payload::received))
    STRATA_TRY(accumulate_from_all_ranks(context, chunk, first, tier, stream));
  else
    STRATA_TRY(on_device ? accumulate_on_device(context, chunk, first)
                         : accumulate_in_ram(context, chunk, first));
  const PayloadKey sum_key{chunk, Payload::accum};
  if (last) {
    if (context.groups() != nullptr) STRATA_TRY(complete_sum(context, chunk, tier));
    STRATA_TRY_ASSIGN(const ChunkPin sum, context.chunks().pin(sum_key, tier, Intent::read, stream));
    STRATA_TRY(queue_norm_partials(context, chunk, sum.view(), stream));
  }
  return on_device ? Status::ok() : context.chunks().write_back(sum_key);
}

}  // namespace strata::detail
