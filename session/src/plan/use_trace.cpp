#include <strata/session/use_trace.h>

#include <algorithm>
#include <map>
#include <utility>

namespace strata {

UseTrace::PassFlops UseTrace::pass_flops() const noexcept {
  PassFlops flops;
  bool in_backward = false;
  for (const Position& position : positions) {
    in_backward = in_backward || !position.grads.empty();
    (in_backward ? flops.backward : flops.forward) += position.flops;
  }
  return flops;
}

void UseTrace::mark_first_and_last_writes() {
  std::map<ChunkId, std::pair<std::size_t, std::size_t>> span;  // first and last position that writes
  for (std::size_t i = 0; i < positions.size(); ++i)
    for (const GradWrite& write : positions[i].grads) {
      const auto at = span.emplace(write.chunk, std::pair{i, i}).first;
      at->second.second = i;
    }
  for (std::size_t i = 0; i < positions.size(); ++i)
    for (GradWrite& write : positions[i].grads) {
      write.first = span[write.chunk].first == i;
      write.last = span[write.chunk].second == i;
    }
}

}  // namespace strata
