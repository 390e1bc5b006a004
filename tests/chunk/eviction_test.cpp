#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <list>

#include "chunk/chunk_fixture.h"

// The value of knowing the schedule: the manager's fetches over whole steps, compared with the offline
// optimum (Belady 1966: for clean copies of equal size, evicting the one needed latest minimizes fetches),
// LRU and FIFO.

namespace strata {
namespace {

/// The chunks in the order in which one step uses them.
struct AccessPattern {
  const char* name;
  int n_chunks = 0;
  std::vector<ChunkId> uses;
};

void add_range(std::vector<ChunkId>& uses, int from, int to) {
  for (int c = from; c != to; c += from < to ? 1 : -1) uses.push_back(static_cast<ChunkId>(c));
}

std::vector<AccessPattern> traces() {
  std::vector<AccessPattern> all;
  const auto add = [&](const char* name, int n, const std::vector<std::pair<int, int>>& ranges) {
    AccessPattern& trace = all.emplace_back(AccessPattern{name, n, {}});
    for (const auto& [from, to] : ranges) add_range(trace.uses, from, to);
  };
  add("palindromic", 16, {{0, 16}, {15, -1}});
  add("separate step", 16, {{0, 16}, {15, -1}, {0, 16}});
  add("two micro-batches", 16, {{0, 16}, {15, -1}, {0, 16}, {15, -1}});
  add("two models", 20, {{12, 20}, {0, 12}, {11, -1}});  // a reference model, then the model being trained
  add("reward of two", 20, {{0, 12}, {12, 20}, {12, 20}, {0, 12}, {11, -1}});  // scored twice, then trained
  AccessPattern tied{"tied", 16, {}};  // the first chunk is also the last: a tied embedding
  add_range(tied.uses, 0, 16);
  tied.uses.push_back(0);
  tied.uses.push_back(0);
  add_range(tied.uses, 15, -1);
  all.push_back(tied);
  AccessPattern frozen{"frozen base", 24, {}};  // adapters, which are used with each chunk of the base
  for (const bool backward : {false, true})
    for (int i = 0; i < 20; ++i) {
      const int base = backward ? 19 - i : i;
      frozen.uses.push_back(static_cast<ChunkId>(base));
      frozen.uses.push_back(static_cast<ChunkId>(20 + base / 5));
    }
  all.push_back(frozen);
  return all;
}

constexpr int kSteps = 6, kCounted = 4;

/// Misses in the last steps of a policy that chooses which of the held chunks is evicted at use `at`.
template <class Choose>
int misses(const AccessPattern& trace, std::size_t slots, const Choose& choose) {
  std::vector<ChunkId> order;
  for (int step = 0; step < kSteps + 2; ++step)
    order.insert(order.end(), trace.uses.begin(), trace.uses.end());
  std::list<ChunkId> held;
  int missed = 0;
  for (std::size_t at = 0; at < trace.uses.size() * kSteps; ++at) {
    const auto found = std::find(held.begin(), held.end(), order[at]);
    if (found == held.end()) {
      if (at >= trace.uses.size() * (kSteps - kCounted)) ++missed;
      if (held.size() == slots) held.erase(choose(held, order, at));
      held.push_back(order[at]);
    } else if (choose.refreshes) {
      held.splice(held.end(), held, found);
    }
  }
  return missed;
}

struct Optimum {
  bool refreshes = false;
  std::list<ChunkId>::iterator operator()(std::list<ChunkId>& held, const std::vector<ChunkId>& order,
                                          std::size_t at) const {
    const auto next = [&](ChunkId chunk) {
      return std::find(order.begin() + static_cast<std::ptrdiff_t>(at), order.end(), chunk);
    };
    return std::max_element(held.begin(), held.end(),
                            [&](ChunkId a, ChunkId b) { return next(a) < next(b); });
  }
};
struct OldestFirst {
  bool refreshes = false;  ///< true: ordered by last use (LRU); false: by arrival (FIFO)
  std::list<ChunkId>::iterator operator()(std::list<ChunkId>& held, const std::vector<ChunkId>&,
                                          std::size_t) const {
    return held.begin();
  }
};

int fetches_of_manager(const AccessPattern& trace, std::uint32_t slots) {
  const auto fixture = test::parameters_in_ram(trace.n_chunks, slots);
  std::vector<Use> uses;
  for (std::size_t i = 0; i < trace.uses.size(); ++i)
    uses.push_back({static_cast<std::int32_t>(i), test::param(trace.uses[i]), Tier::device});
  fixture->uses.set_uses(uses, static_cast<std::int32_t>(trace.uses.size()));
  int before = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps - kCounted) before = fixture->mover.copies;
    for (const Use& use : uses) {
      fixture->uses.set_position(use.position);
      fixture->check(use.key, Tier::device, use.key.chunk);
    }
  }
  EXPECT_EQ(fixture->differences, 0);
  return fixture->mover.copies - before;
}

TEST(EvictionTest, TheManagerFetchesWithinFivePercentOfTheOptimum) {
  double worst = 0;
  std::printf("%-18s %6s %8s %8s %6s %6s\n", "trace", "slots", "manager", "optimum", "LRU", "FIFO");
  for (const AccessPattern& trace : traces())
    for (const std::uint32_t slots : {3u, 6u, 12u}) {
      const int manager = fetches_of_manager(trace, slots), optimum = misses(trace, slots, Optimum{});
      std::printf("%-18s %6u %8d %8d %6d %6d\n", trace.name, slots, manager, optimum,
                  misses(trace, slots, OldestFirst{true}), misses(trace, slots, OldestFirst{false}));
      ASSERT_GT(optimum, 0);
      worst = std::max(worst, static_cast<double>(manager) / optimum);
    }
  std::printf("worst %.4f\n", worst);
  EXPECT_LE(worst, 1.05);
}

/// An iteration of two models: one is run `n` times, then the other, and then the first is trained.
std::vector<AccessPattern> phases(int n) {
  std::vector<AccessPattern> all;
  for (int model = 0; model < 2; ++model)
    for (int pass = 0; pass < n; ++pass) {
      AccessPattern& trace = all.emplace_back(AccessPattern{"forward", 20, {}});
      add_range(trace.uses, model == 0 ? 0 : 10, model == 0 ? 10 : 20);
    }
  AccessPattern& train = all.emplace_back(AccessPattern{"train", 20, {}});
  add_range(train.uses, 0, 10);
  add_range(train.uses, 9, -1);
  return all;
}

// Every pass has a schedule of its own, as programs do; `knows` what follows it, or believes that it comes
// again.
int fetches_of_phases(const std::vector<AccessPattern>& passes, std::uint32_t slots, bool knows) {
  const auto fixture = test::parameters_in_ram(passes.front().n_chunks, slots);
  std::vector<std::vector<Use>> uses;
  std::vector<FirstUses> first;
  for (const AccessPattern& pass : passes) {
    std::vector<Use>& own = uses.emplace_back();
    for (std::size_t i = 0; i < pass.uses.size(); ++i)
      own.push_back({static_cast<std::int32_t>(i), test::param(pass.uses[i]), Tier::device});
    first.emplace_back(static_cast<std::size_t>(pass.n_chunks), own, static_cast<std::int32_t>(own.size()));
  }
  int before = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps - kCounted) before = fixture->mover.copies;
    for (std::size_t p = 0; p < passes.size(); ++p) {
      fixture->uses.set_uses(uses[p], static_cast<std::int32_t>(uses[p].size()));
      std::vector<const FirstUses*> following;
      for (std::size_t i = 1; knows && i <= passes.size(); ++i)
        following.push_back(&first[(p + i) % passes.size()]);
      fixture->uses.set_following(following);
      for (const Use& use : uses[p]) {
        fixture->uses.set_position(use.position);
        fixture->check(use.key, Tier::device, use.key.chunk);
      }
    }
  }
  EXPECT_EQ(fixture->differences, 0);
  return fixture->mover.copies - before;
}

TEST(EvictionTest, KnowingWhichPassFollowsGivesTheOptimumOverPhases) {
  int most_saved = 0;
  for (const int n : {1, 3})
    for (const std::uint32_t slots : {4u, 8u, 12u, 16u}) {
      const std::vector<AccessPattern> passes = phases(n);
      AccessPattern whole{"phases", 20, {}};
      for (const AccessPattern& pass : passes)
        whole.uses.insert(whole.uses.end(), pass.uses.begin(), pass.uses.end());
      const int optimum = misses(whole, slots, Optimum{});
      const int known = fetches_of_phases(passes, slots, true),
                unknown = fetches_of_phases(passes, slots, false);
      std::printf("%d passes each, %u slots: %d fetches, %d if each pass were to come again, optimum %d\n", n,
                  slots, known, unknown, optimum);
      EXPECT_LE(known, optimum * 1.05);
      most_saved = std::max(most_saved, unknown - known);
    }
  EXPECT_GE(most_saved, 28);  // one pass each in 8 or 12 slots
}

}  // namespace
}  // namespace strata
