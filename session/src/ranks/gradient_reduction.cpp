#include "ranks/gradient_reduction.h"

#include "step/gradient_sums.h"

namespace strata::detail {

Status accumulate_from_all_ranks(StateContext& context, ChunkId chunk, bool first, Tier tier,
                                 Stream& stream) {
  ChunkManager& chunks = context.chunks();
  Stream& collective = context.streams().collective;
  const PayloadKey grad_key{chunk, Payload::grad}, received_key{chunk, Payload::received},
      sum_key{chunk, Payload::accum};
  {
    STRATA_TRY_ASSIGN(const ChunkPin grad, chunks.pin(grad_key, Tier::device, Intent::read, collective));
    STRATA_TRY_ASSIGN(const ChunkPin received, chunks.pin(received_key, tier, Intent::overwrite, collective));
    STRATA_TRY(context.groups()->sums().all_to_all(grad.view(), received.view(), collective));
  }
  STRATA_TRY(chunks.drop(grad_key));
  {
    STRATA_TRY_ASSIGN(const ChunkPin received, chunks.pin(received_key, tier, Intent::read, stream));
    STRATA_TRY_ASSIGN(const ChunkPin sum,
                      chunks.pin(sum_key, tier, first ? Intent::overwrite : Intent::update, stream));
    const Addends addends{received.view(), context.plan().layout.group_of(chunk).grad,
                          context.plan().options.ranks};
    STRATA_TRY(
        queue_accumulate(context, chunk, summed_part(context, chunk, sum.view()), addends, first, stream));
  }
  return chunks.drop(received_key);
}

// The rank's part of the sum gets those of the other ranks if the reduction is `once`. Where a rank holds
// more than its part (DDP, HSDP), the rest comes from the ranks that have summed it.
Status complete_sum(StateContext& context, ChunkId chunk, Tier tier) {
  const DataParallel& ranks = context.plan().options.ranks;
  RankGroups& groups = *context.groups();
  Stream& collective = context.streams().collective;
  const bool adds = ranks.sums_locally(), spreads = ranks.replicas() > 1 && !ranks.sums_in_program();
  if (!adds && !spreads) return {};
  const GroupKey& group = context.plan().layout.group_of(chunk);
  STRATA_TRY_ASSIGN(const ChunkPin sum,
                    context.chunks().pin({chunk, Payload::accum}, tier, Intent::update, collective));
  const BufferView part = summed_part(context, chunk, sum.view());
  if (adds)
    STRATA_TRY(groups.sums().reduce_scatter(sum.view(), part, group.accum, Reduction::sum, collective));
  if (!spreads) return {};
  const ElemRange shard = context.plan().layout.range(chunk, Payload::param),
                  held = context.plan().layout.range(chunk, Payload::accum);
  const std::size_t width = size_of(group.accum);
  const BufferView whole_shard = sum.view().part(static_cast<std::size_t>(shard.begin - held.begin) * width,
                                                 static_cast<std::size_t>(shard.size()) * width);
  return groups.replicas().all_gather(part, whole_shard, collective);
}

}  // namespace strata::detail
