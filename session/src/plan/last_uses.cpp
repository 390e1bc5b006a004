#include "plan/last_uses.h"

#include <algorithm>

namespace strata::detail {

std::vector<ChunkPosition> last_uses(const UseTrace& uses, const ChunkLayout& layout, std::int32_t trainee) {
  std::vector<ChunkPosition> last;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk) last.emplace_back(-1, chunk);
  for (std::size_t i = 0; i < uses.positions.size(); ++i) {
    for (const ChunkId chunk : uses.positions[i].params) last[chunk].first = static_cast<std::int32_t>(i);
    for (const GradWrite& write : uses.positions[i].grads)
      last[write.chunk].first = static_cast<std::int32_t>(i);
  }
  std::erase_if(last, [&](const ChunkPosition& at) {
    const GroupKey& group = layout.group_of(at.second);
    return !group.trainable || group.trainee != trainee;
  });
  std::sort(last.begin(), last.end());
  return last;
}

}  // namespace strata::detail
