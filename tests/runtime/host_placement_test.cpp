// Tests on which NUMA node the host backend places memory.
#include <strata/runtime/backend/host_backend.h>

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/threads/topology.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

/// Runs everything on the calling thread and counts the items of NUMA-local loops.
class OneThread final : public ThreadPool {
 public:
  explicit OneThread(std::vector<int> nodes) : nodes_(std::move(nodes)) {}
  int threads() const noexcept override { return 1; }
  std::span<const int> nodes() const noexcept override { return nodes_; }
  std::int64_t owned() const noexcept { return owned_; }

 protected:
  void run(std::int64_t n, Function function, const void* context, Stealing stealing) override {
    if (stealing == Stealing::within_node) owned_ += n;
    for (std::int64_t i = 0; i < n; ++i) function(context, i);
  }

 private:
  const std::vector<int> nodes_;
  std::int64_t owned_ = 0;
};

struct Placed {
  Result<int> binding = kAllNumaNodes;
  std::int64_t owned_items = 0;
};
Placed place(std::vector<int> nodes, std::size_t bytes) {
  OneThread pool(std::move(nodes));
  SteadyClock clock;
  const auto backend = must(create_host_backend({}, pool, clock));
  const Buffer buffer = must(backend->allocate(MemoryKind::pinned, bytes));
  return {numa_binding(buffer.view().data, bytes), pool.owned()};
}

int real_node() { return must(read_topology()).numa.back().index; }

TEST(HostPlacementTest, MemoryIsBoundToTheOneNodeOfItsThreads) {
  const Placed placed = place({real_node()}, kMiB);
  if (!placed.binding.has_value()) GTEST_SKIP() << placed.binding.status().message();
  EXPECT_EQ(*placed.binding, real_node());
}

TEST(HostPlacementTest, ThreadsOfSeveralNodesTouchTheirPartsFirst) {
  const Placed placed = place({real_node(), real_node()}, 9 * kMiB);
  EXPECT_EQ(placed.owned_items, 3);
  if (!placed.binding.has_value()) GTEST_SKIP() << placed.binding.status().message();
  EXPECT_EQ(*placed.binding, kAllNumaNodes);
}

TEST(HostPlacementTest, UnboundThreadsLeaveMemoryUnbound) {
  const Placed placed = place({}, kMiB);
  if (!placed.binding.has_value()) GTEST_SKIP() << placed.binding.status().message();
  EXPECT_EQ(*placed.binding, kAllNumaNodes);
}

}  // namespace
}  // namespace strata
