#include "checkpoint/part_digests.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace strata::detail {
namespace {

constexpr std::int64_t kBlockElems = BlockDigester::kBlockBytes / sizeof(float);
static_assert(ChunkLayout::kSliceAlign % kBlockElems == 0, "the parts of ranks consist of whole blocks");

}  // namespace

Status PartDigests::add(const StatePiece& piece, std::span<const float> values) {
  const Slice& slice = plan_.layout.slice(piece.tensor);
  while (chunk_ < slice.chunk) STRATA_TRY(complete_chunk());
  const ElemRange part = plan_.layout.summed(slice.chunk);
  const std::int64_t begin = std::max(piece.offset, part.begin - slice.offset),
                     end = std::min(piece.offset + std::ssize(values), part.end - slice.offset);
  if (begin >= end) return {};
  if (now_.tensor != piece.tensor) {
    end_blocks();
    now_.tensor = piece.tensor;
    now_.first = static_cast<std::int32_t>(begin / kBlockElems);
  }
  digester_.update(std::as_bytes(
      values.subspan(static_cast<std::size_t>(begin - piece.offset), static_cast<std::size_t>(end - begin))));
  return {};
}

void PartDigests::end_blocks() {
  if (now_.tensor < 0) return;
  now_.digests = digester_.take();
  blocks_.push_back(std::move(now_));
  now_ = {};
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

// Each rank sends its runs of blocks: tensor, first block, count, digests.
Status PartDigests::complete_chunk() {
  end_blocks();
  std::vector<Blocks> all = std::exchange(blocks_, {});
  ++chunk_;
  if (world_ != nullptr) {
    std::string mine;
    for (const Blocks& run : all) {
      const std::int32_t head[] = {run.tensor, run.first, static_cast<std::int32_t>(run.digests.size())};
      append(mine, head, std::size(head));
      append(mine, run.digests.data(), run.digests.size());
    }
    STRATA_TRY_ASSIGN(const std::vector<std::string> texts, world_->all_gather(mine));
    all.clear();
    for (std::string_view text : texts)
      while (!text.empty()) {
        std::int32_t head[3];
        take(text, head, std::size(head));
        all.push_back({head[0], head[1], std::vector<Digest>(static_cast<std::size_t>(head[2]))});
        take(text, all.back().digests.data(), all.back().digests.size());
      }
    std::sort(all.begin(), all.end(), [](const Blocks& a, const Blocks& b) {
      return std::pair(a.tensor, a.first) < std::pair(b.tensor, b.first);
    });
  }
  for (std::size_t i = 0; i < all.size();) {
    std::vector<Digest> whole = std::move(all[i].digests);
    const std::int32_t tensor = all[i++].tensor;
    for (; i < all.size() && all[i].tensor == tensor; ++i)
      whole.insert(whole.end(), all[i].digests.begin(), all[i].digests.end());
    digests_[static_cast<std::size_t>(tensor)] = BlockDigester::digest_of_blocks(whole);
  }
  return {};
}

Status PartDigests::finish() {
  while (chunk_ < plan_.layout.n_chunks()) STRATA_TRY(complete_chunk());
  return {};
}

}  // namespace strata::detail
