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

AccessTrace access_trace(const UseTrace& uses, std::int32_t passes, bool training) {
  AccessTrace trace;
  trace.micro_batches = passes;
  trace.training = training;
  std::vector<ChunkId> open;
  for (const UseTrace::Position& position : uses.positions) {
    AccessTrace::Access access;
    access.flops = position.flops;
    for (const GradWrite& write : position.grads)
      if (write.first) open.push_back(write.chunk);
    for (const ChunkId chunk : position.params) access.on_device.push_back({chunk, Payload::param});
    for (const ChunkId chunk : open) access.on_device.push_back({chunk, Payload::grad});
    for (const GradWrite& write : position.grads)
      if (write.last) open.erase(std::find(open.begin(), open.end(), write.chunk));
    trace.accesses.push_back(std::move(access));
  }
  return trace;
}

}  // namespace strata
