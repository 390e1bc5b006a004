#include "ranks/parameter_gather.h"

namespace strata::detail {

std::int64_t ParameterGather::due(const GatherSchedule& schedule, std::int32_t i) {
  for (; next_ < schedule.gathers.size() && schedule.gathers[next_].begin <= i; ++next_)
    if (const ChunkId chunk = schedule.gathers[next_].chunk; !is_current_[chunk]) return chunk;
  return -1;
}

Status ParameterGather::gather(ChunkId chunk) {
  ChunkManager& chunks = context_.chunks();
  Stream& collective = context_.streams().collective;
  const PayloadKey shard_key{chunk, Payload::param}, gathered_key{chunk, Payload::gathered};
  {
    STRATA_TRY_ASSIGN(const ChunkPin shard, chunks.pin(shard_key, Tier::device, Intent::read, collective));
    STRATA_TRY_ASSIGN(const ChunkPin gathered,
                      chunks.pin(gathered_key, Tier::device, Intent::overwrite, collective));
    STRATA_TRY(context_.groups()->shards().all_gather(shard.view(), gathered.view(), collective));
  }
  is_current_[chunk] = true;
  return chunks.write_back(gathered_key);  // to its home, if it has one
}

Status ParameterGather::release(const GatherSchedule& schedule, std::int32_t i) {
  for (; next_release_ < schedule.by_release.size(); ++next_release_) {
    const auto& gather = schedule.gathers[static_cast<std::size_t>(schedule.by_release[next_release_])];
    if (gather.last > i) break;
    STRATA_TRY(context_.chunks().drop({gather.chunk, Payload::gathered}));
    is_current_[gather.chunk] = false;
  }
  return {};
}

void ParameterGather::abandon() noexcept {
  invalidate();
  for (ChunkId chunk = 0; chunk < is_current_.size(); ++chunk)
    if (context_.plan().layout.has(chunk, Payload::gathered))
      (void)context_.chunks().drop({chunk, Payload::gathered});
}

}  // namespace strata::detail
