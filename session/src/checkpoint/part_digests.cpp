#include "checkpoint/part_digests.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace strata::detail {
namespace {

constexpr std::int64_t kBlockElems = BlockDigester::kBlockBytes / sizeof(float);
static_assert(ChunkLayout::kSliceAlign % kBlockElems == 0, "the parts of ranks consist of whole blocks");

}  // namespace

void PartDigests::add(const StatePiece& piece, std::span<const float> values, std::size_t series) {
  const Slice& slice = plan_.layout.slice(piece.tensor, piece.offset);
  if (!covers(slice.chunk)) return;
  const ElemRange part = plan_.layout.summed(slice.chunk);
  const std::int64_t first = slice.offset - slice.first;  // where the tensor would begin in the chunk
  const std::int64_t begin = std::max(piece.offset, part.begin - first),
                     end = std::min(piece.offset + std::ssize(values), part.end - first);
  if (begin >= end) return;
  Series& of = series_[series];
  if (of.now.tensor != piece.tensor || of.now.chunk != slice.chunk || of.now_end != begin) {
    end_blocks(series);
    of.now = {static_cast<std::int32_t>(series),
              piece.tensor,
              static_cast<std::int32_t>(begin / kBlockElems),
              slice.chunk,
              {}};
  }
  of.now_end = end;
  const auto own = std::as_bytes(
      values.subspan(static_cast<std::size_t>(begin - piece.offset), static_cast<std::size_t>(end - begin)));
  if (pool_ != nullptr)
    of.digester.update(own, *pool_);
  else
    of.digester.update(own);
}

// A rank that is alone has all blocks.
void PartDigests::end_blocks(std::size_t series) {
  Series& of = series_[series];
  if (of.now.tensor < 0) return;
  of.now.digests = of.digester.take();
  std::vector<Blocks> run;
  run.push_back(std::exchange(of.now, {}));
  if (world_ == nullptr)
    join(run);
  else
    blocks_.push_back(std::move(run.front()));
}

namespace {

template <class T>
void append(std::string& text, const T* values, std::size_t n) {
  text.append(reinterpret_cast<const char*>(values), n * sizeof(T));
}
template <class T>
void take(std::string_view& text, T* values, std::size_t n) {
  std::memcpy(values, text.data(), n * sizeof(T));
  text.remove_prefix(n * sizeof(T));
}

}  // namespace

// Each rank sends its runs of blocks: series, tensor, first block, count, digests.
Status PartDigests::exchange(std::vector<Blocks>& runs) const {
  std::string mine;
  for (const Blocks& run : runs) {
    const std::int32_t head[] = {run.series, run.tensor, run.first,
                                 static_cast<std::int32_t>(run.digests.size())};
    append(mine, head, std::size(head));
    append(mine, run.digests.data(), run.digests.size());
  }
  STRATA_TRY_ASSIGN(const std::vector<std::string> texts, world_->all_gather(mine));
  runs.clear();
  const std::int32_t sharing = plan_.options.model.ranks(), own = plan_.options.model.rank;
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    for (std::string_view text = static_cast<std::int32_t>(rank) % sharing == own ? texts[rank]
                                                                                  : std::string_view();
         !text.empty();) {
      std::int32_t head[4];
      take(text, head, std::size(head));
      runs.push_back({head[0], head[1], head[2], 0, std::vector<Digest>(static_cast<std::size_t>(head[3]))});
      take(text, runs.back().digests.data(), runs.back().digests.size());
    }
  return {};
}

// A tensor's blocks wait for those in other chunks.
void PartDigests::join(std::vector<Blocks>& runs) {
  for (Blocks& run : runs) {
    const auto key = std::pair(run.series, run.tensor);
    Joined& joined = joined_[key];
    joined.n_blocks += std::ssize(run.digests);
    joined.runs.push_back(std::move(run));
    const std::int64_t n_elems = plan_.tensors.specs[static_cast<std::size_t>(key.second)].n_elems;
    if (joined.n_blocks < (n_elems + kBlockElems - 1) / kBlockElems) continue;
    std::sort(joined.runs.begin(), joined.runs.end(),
              [](const Blocks& a, const Blocks& b) { return a.first < b.first; });
    std::vector<Digest> whole;
    for (const Blocks& of : joined.runs) whole.insert(whole.end(), of.digests.begin(), of.digests.end());
    series_[static_cast<std::size_t>(key.first)].digests[static_cast<std::size_t>(key.second)] =
        BlockDigester::digest_of_blocks(whole);
    joined_.erase(key);
  }
}

// Stages of a pipeline have different numbers of chunks, and all take part in as many exchanges as the one
// with the most.
Result<std::size_t> PartDigests::count_exchanges(std::size_t own) const {
  if (plan_.options.model.pp == 1) return own;
  std::string mine;
  const auto count = static_cast<std::uint64_t>(own);
  append(mine, &count, 1);
  STRATA_TRY_ASSIGN(const std::vector<std::string> all, world_->all_gather(mine));
  std::uint64_t most = 0;
  for (std::string_view text : all) {
    std::uint64_t of_rank = 0;
    take(text, &of_rank, 1);
    most = std::max(most, of_rank);
  }
  return static_cast<std::size_t>(most);
}

// Only here ranks exchange data, since digests of several passes over the states may be taken at once, and a
// rank that has no part of a chunk does not know how far the others are.
Status PartDigests::finish() {
  for (std::size_t series = 0; series < series_.size(); ++series) end_blocks(series);
  if (world_ == nullptr) return {};
  std::stable_sort(blocks_.begin(), blocks_.end(),
                   [](const Blocks& a, const Blocks& b) { return a.chunk < b.chunk; });
  std::vector<ChunkId> chunks;
  for (ChunkId chunk = 0; chunk < plan_.layout.n_chunks(); ++chunk)
    if (covers(chunk)) chunks.push_back(chunk);
  STRATA_TRY_ASSIGN(const std::size_t exchanges, count_exchanges(chunks.size()));
  auto next = blocks_.begin();
  for (std::size_t i = 0; i < exchanges; ++i) {
    std::vector<Blocks> runs;
    for (; i < chunks.size() && next != blocks_.end() && next->chunk == chunks[i]; ++next)
      runs.push_back(std::move(*next));
    STRATA_TRY(exchange(runs));
    join(runs);
  }
  blocks_.clear();
  return {};
}

}  // namespace strata::detail
