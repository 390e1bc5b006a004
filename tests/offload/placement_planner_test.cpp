#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/offload/placement_planner.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kSlot = 4096 * 4;
constexpr std::array<Payload, 4> kHomed = {Payload::param, Payload::m, Payload::v, Payload::accum};

struct Model {
  ChunkLayout layout;
  AccessTrace trace;
};

// A model of `chunks` chunks, each of one slot (the last `large` of two), with a forward and a backward pass.
Model model_of(int chunks, int large = 0, std::int32_t micro_batches = 2,
               std::size_t fixed_bytes = 8 * kPage) {
  Model model;
  std::vector<LayoutTensor> tensors;
  for (int i = 0; i < chunks; ++i) tensors.push_back({str("t", i), i < chunks - large ? 4096 : 8192, {}});
  LayoutOptions options;
  options.chunk_elems = 4096;
  model.layout = must(ChunkLayout::create(tensors, options));
  for (ChunkId c = 0; c < static_cast<ChunkId>(chunks); ++c)
    model.trace.accesses.push_back({{{c, Payload::param}}, 1});
  for (auto c = static_cast<ChunkId>(chunks); c-- > 0;)
    model.trace.accesses.push_back({{{c, Payload::param}, {c, Payload::grad}}, 2});
  model.trace.micro_batches = micro_batches;
  model.trace.device_fixed_bytes = fixed_bytes;
  model.trace.pinned_fixed_bytes = kPage;
  return model;
}

std::size_t homes_in(const Placement& placement, Tier tier) {
  std::size_t n = 0;
  for (const auto& homes : placement.homes)
    for (const Payload payload : kHomed) n += homes[static_cast<std::size_t>(payload)] == tier ? 1u : 0u;
  return n;
}
void expect_within(const Model& model, const Placement& placement, const TierBytes& budgets) {
  const TierBytes bytes = placement_bytes(model.layout, model.trace, placement);
  for (std::size_t t = 0; t < kTiers; ++t) EXPECT_LE(bytes[t], budgets[t]) << to_string(static_cast<Tier>(t));
}
bool fits(const Model& model, PlacementRequest request, const TierBytes& budgets) {
  request.budgets = budgets;
  return plan_placement(model.layout, model.trace, request).has_value();
}

TEST(PlacementPlannerTest, WithoutLimitsEverythingLivesOnTheDevice) {
  const Model model = model_of(6);
  const Placement placement = must(plan_placement(model.layout, model.trace, {}));
  EXPECT_EQ(homes_in(placement, Tier::device), 6u * 4u);
}

TEST(PlacementPlannerTest, TheFastestTierIsFilledFirstAndOnlyTheExcessSpills) {
  const Model model = model_of(8);
  std::uint64_t last = 0;
  for (std::uint64_t slots = 4; slots <= 40; ++slots) {
    const TierBytes budgets = {8 * kPage + slots * kSlot, kUnlimited, kUnlimited};
    const Placement placement = must(plan_placement(model.layout, model.trace, {budgets}));
    expect_within(model, placement, budgets);
    EXPECT_EQ(homes_in(placement, Tier::nvme), 0u);  // pinned memory has room
    // The device use never falls with a larger budget, and no memory remains that could hold the parameters
    // of another chunk.
    const std::uint64_t used = placement_bytes(model.layout, model.trace, placement)[0];
    EXPECT_GE(used, last) << slots;
    last = used;
    EXPECT_TRUE(slots < 40 || homes_in(placement, Tier::device) == 8u * 4u);
  }
}

TEST(PlacementPlannerTest, RemainingDeviceMemoryCachesParametersInItsWindow) {
  const Model model = model_of(8);
  PlacementRequest request;
  request.policy = PlacementPolicy::pinned;
  request.prefetch = 0;
  std::uint32_t last = 0;
  for (std::uint64_t slots = 2; slots <= 14; ++slots) {  // the minimum is a parameter and its gradient
    request.budgets = {8 * kPage + slots * kSlot, kUnlimited, 0};
    const Placement placement = must(plan_placement(model.layout, model.trace, request));
    expect_within(model, placement, request.budgets);
    EXPECT_EQ(homes_in(placement, Tier::device), 0u);
    const std::uint32_t window = placement.classes.front().window[0];
    EXPECT_EQ(window, std::min<std::uint64_t>(slots, 2 + 8)) << "all eight beside the minimum, and no more";
    EXPECT_GE(window, last);
    last = window;
  }
}

// A chunk of one slot and one of two are never in use together, so they take turns in the window of the
// larger.
// Layers of eight chunks, each of which so many micro-batches use before the next layer.
TEST(PlacementPlannerTest, TheWindowHoldsWhatMicroBatchesUseAgainBeforeTheNextLayer) {
  constexpr ChunkId kLayers = 6, kOfLayer = 8;
  const auto window_with = [&](int micro_batches, std::uint64_t slots) {
    Model model = model_of(kLayers * kOfLayer, 0, 1);
    model.trace.accesses.clear();
    model.trace.training = false;
    const auto use_layer = [&](ChunkId layer) {
      for (int m = 0; m < micro_batches; ++m)
        for (ChunkId c = layer * kOfLayer; c < (layer + 1) * kOfLayer; ++c)
          model.trace.accesses.push_back({{{c, Payload::param}}, 1});
    };
    for (ChunkId layer = 0; layer < kLayers; ++layer) use_layer(layer);
    for (ChunkId layer = kLayers; layer-- > 0;) use_layer(layer);
    const TierBytes budgets = {8 * kPage + slots * kSlot, kUnlimited, kUnlimited};
    PlacementRequest request{.budgets = budgets, .gradients = GradientPolicy::pinned};
    const Placement placement = must(plan_placement(model.layout, model.trace, request));
    expect_within(model, placement, budgets);
    return placement.classes[0].window[static_cast<std::size_t>(Tier::device)];
  };
  EXPECT_GE(window_with(16, 40), kOfLayer);
  EXPECT_GE(window_with(2, 40), kOfLayer);
  EXPECT_LT(window_with(1, 40), kOfLayer);  // the next use is a pass away
  EXPECT_LT(window_with(16, 7), kOfLayer);  // there is no room for a layer
}

TEST(PlacementPlannerTest, ClassesShareTheDeviceWindowWhereTheirOwnDoNotFit) {
  const Model model = model_of(8, 1);
  PlacementRequest request;
  request.policy = PlacementPolicy::pinned;
  request.prefetch = 0;
  const auto placed = [&](std::uint64_t slots) {
    request.budgets = {8 * kPage + slots * kSlot, kUnlimited, 0};
    return plan_placement(model.layout, model.trace, request);
  };
  const Placement apart = must(placed(6)), shared = must(placed(5)), smallest = must(placed(4));
  EXPECT_TRUE(apart.device_windows.empty()) << "a parameter and its gradient, of each size";
  for (const Placement& p : {shared, smallest}) {
    EXPECT_EQ(p.device_windows, (std::vector<std::uint32_t>{1, 1}));
    EXPECT_EQ(p.classes[0].window[0], 0u);
    EXPECT_EQ(p.classes[1].window[0], 2u);
    EXPECT_TRUE(p.check(model.layout).is_ok());
  }
  EXPECT_THAT(std::string(placed(3).status().message()),
              HasSubstr(str("memory.device=", 8 * kPage + 4 * kSlot)));
}

TEST(PlacementPlannerTest, GradientsAreWhereThePolicyPutsThem) {
  const Model model = model_of(8);
  PlacementRequest request;
  request.policy = PlacementPolicy::pinned;
  request.gradients = GradientPolicy::device;
  request.budgets = {8 * kPage + 10 * kSlot, kUnlimited, 0};  // 8 gradients, and a window of 2
  const auto gradients_on_device = [&](const Placement& placement) {
    std::size_t n = 0;
    for (const auto& homes : placement.homes)
      n += homes[static_cast<std::size_t>(Payload::accum)] == Tier::device ? 1u : 0u;
    return n;
  };
  const Placement all = must(plan_placement(model.layout, model.trace, request));
  expect_within(model, all, request.budgets);
  EXPECT_EQ(gradients_on_device(all), 8u);
  EXPECT_EQ(homes_in(all, Tier::device), 8u);
  request.budgets[0] -= kPage;
  const auto refused = plan_placement(model.layout, model.trace, request);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr(str("memory.device=", 8 * kPage + 10 * kSlot)));
  request.policy = PlacementPolicy::automatic;
  request.gradients = GradientPolicy::pinned;
  const Placement none = must(plan_placement(model.layout, model.trace, request));
  EXPECT_EQ(4 * gradients_on_device(none), homes_in(none, Tier::device));  // only whole chunks
}

TEST(PlacementPlannerTest, InPinnedMemoryParametersComeBeforeGradientsBeforeMoments) {
  const Model model = model_of(8);
  for (std::uint64_t slots = 8; slots <= 40; ++slots) {
    const Placement placement = must(plan_placement(
        model.layout, model.trace, {{8 * kPage + 4 * kSlot, kPage + slots * kSlot, kUnlimited}}));
    const auto pinned = [&](Payload payload) {
      std::size_t n = 0;
      for (const auto& homes : placement.homes)
        n += homes[static_cast<std::size_t>(payload)] == Tier::pinned ? 1u : 0u;
      return n;
    };
    EXPECT_TRUE(pinned(Payload::param) == 8 || pinned(Payload::accum) == 0) << slots;
    EXPECT_TRUE(pinned(Payload::accum) == 8 || pinned(Payload::m) == 0) << slots;
  }
}

// A bf16 model in which every second chunk is frozen: such a chunk has only its parameter and its master.
Model half_frozen(int chunks) {
  Model model = model_of(chunks);
  std::vector<LayoutTensor> tensors;
  for (int i = 0; i < chunks; ++i)
    tensors.push_back(
        {str("t", i), 4096, {.compute = DType::bf16, .grad = DType::bf16, .trainable = i % 2 != 0}});
  LayoutOptions options;
  options.chunk_elems = 4096;
  model.layout = must(ChunkLayout::create(tensors, options));
  for (AccessTrace::Access& step : model.trace.accesses)
    std::erase_if(step.on_device, [&](PayloadKey key) { return !model.layout.has(key.chunk, key.payload); });
  return model;
}

TEST(PlacementPlannerTest, MastersOfFrozenParametersTakePinnedMemoryLast) {
  const Model model = half_frozen(8);
  int spilled = 0, kept = 0;
  for (std::uint64_t pages = 8; pages < 140; ++pages) {
    const PlacementRequest request{.budgets = {4 * kSlot, pages * kPage, kUnlimited},
                                   .policy = PlacementPolicy::pinned};
    const auto placement = plan_placement(model.layout, model.trace, request);
    if (!placement.has_value()) continue;
    expect_within(model, *placement, request.budgets);
    for (ChunkId chunk = 0; chunk < 8; chunk += 2) {
      for (const Payload none : {Payload::accum, Payload::m, Payload::v, Payload::grad})
        EXPECT_FALSE(placement->home({chunk, none}).has_value());
      const bool in_ram = placement->home({chunk, Payload::master}) == Tier::pinned;
      (in_ram ? kept : spilled) += 1;
      if (!in_ram) continue;
      for (ChunkId trained = 1; trained < 8; trained += 2)
        for (const Payload payload : kHomed)
          EXPECT_EQ(placement->home({trained, payload}), Tier::pinned) << pages;
    }
  }
  EXPECT_GT(spilled, 0);
  EXPECT_GT(kept, 0);
}

TEST(PlacementPlannerTest, PoliciesChooseTheTierOfMostHomes) {
  const Model model = model_of(5);
  const auto with = [&](PlacementPolicy policy) {
    return must(plan_placement(model.layout, model.trace, {.policy = policy}));
  };
  EXPECT_EQ(homes_in(with(PlacementPolicy::automatic), Tier::device), 20u);
  EXPECT_EQ(homes_in(with(PlacementPolicy::device), Tier::device), 20u);
  EXPECT_EQ(homes_in(with(PlacementPolicy::pinned), Tier::pinned), 20u);
  EXPECT_EQ(homes_in(with(PlacementPolicy::nvme), Tier::nvme), 20u);
}

TEST(PlacementPlannerTest, WithoutNvmeNothingIsPlacedThereUnderAnyPolicy) {
  const Model model = model_of(5);
  for (const PlacementPolicy policy :
       {PlacementPolicy::automatic, PlacementPolicy::device, PlacementPolicy::pinned}) {
    EXPECT_EQ(must(plan_placement(model.layout, model.trace, {{kUnlimited, kUnlimited, 0}, policy}))
                  .bytes(model.layout, Tier::nvme),
              0u);
  }
  const PlacementRequest nowhere{{kUnlimited, kUnlimited, 0}, PlacementPolicy::nvme};
  EXPECT_THAT(std::string(plan_placement(model.layout, model.trace, nowhere).status().message()),
              HasSubstr("it fits with: memory.nvme="));
  EXPECT_TRUE(fits(model, nowhere, minimum_budgets(model.layout, model.trace, nowhere)));
}

TEST(PlacementPlannerTest, ARefusalNamesTheShortfallAndASmallestBudgetThatFits) {
  const Model model = model_of(8);
  const PlacementRequest request{{8 * kPage + 4 * kSlot, kPage + 8 * kSlot, 4 * kSlot}};
  const Status status = plan_placement(model.layout, model.trace, request).status();
  EXPECT_EQ(status.code(), Code::does_not_fit);
  const TierBytes enough = minimum_budgets(model.layout, model.trace, request);
  EXPECT_TRUE(fits(model, request, enough));
  EXPECT_THAT(std::string(status.message()), HasSubstr("shortfall"));
  for (std::size_t t = 0; t < kTiers; ++t)
    EXPECT_EQ(status.message().find(str("memory.", to_string(static_cast<Tier>(t)), "=", enough[t])) !=
                  std::string_view::npos,
              enough[t] > request.budgets[t]);
}

// If a tier is at the machine's capacity, the suggestion raises another one; if all are, the message says
// what the machine has.
TEST(PlacementPlannerTest, ASuggestionStaysWithinTheMachinesMemory) {
  const Model model = model_of(8);
  PlacementRequest request{{8 * kPage + 4 * kSlot, kPage + 8 * kSlot, 4 * kSlot}};
  const TierBytes free_choice = minimum_budgets(model.layout, model.trace, request);
  std::size_t grown = 0;
  while (free_choice[grown] == request.budgets[grown]) ++grown;
  request.capacity[grown] = free_choice[grown] - kPage;
  const TierBytes other = minimum_budgets(model.layout, model.trace, request);
  EXPECT_TRUE(fits(model, request, other));
  EXPECT_LE(other[grown], request.capacity[grown]);
  for (std::size_t t = 0; t < kTiers; ++t) request.capacity[t] = request.budgets[t];
  const std::string message(plan_placement(model.layout, model.trace, request).status().message());
  EXPECT_THAT(message, HasSubstr("no budgets within the memory of this machine fit: it has "));
  EXPECT_THAT(message, Not(HasSubstr("it fits with:")));
  EXPECT_TRUE(fits(model, request, minimum_budgets(model.layout, model.trace, request)));
}

// Whether any placement of the planner's form fits: n chunks with homes on the device and, of the rest, the
// first k payloads in pinned memory, in the planner's order.
bool any_placement_fits(const Model& model, const TierBytes& budgets) {
  const auto n_chunks = static_cast<ChunkId>(model.layout.n_chunks());
  for (ChunkId on_device = 0; on_device <= n_chunks; ++on_device)
    for (std::size_t k = 0; k <= 4u * (n_chunks - on_device); ++k) {
      Placement p;
      p.classes = slot_classes(model.layout);
      p.homes.resize(n_chunks);
      std::size_t next = 0;
      for (ChunkId c = 0; c < on_device; ++c)
        for (const Payload payload : kHomed) p.homes[c][static_cast<std::size_t>(payload)] = Tier::device;
      const auto place = [&](ChunkId c, Payload payload) {
        p.homes[c][static_cast<std::size_t>(payload)] = next++ < k ? Tier::pinned : Tier::nvme;
      };
      for (ChunkId c = on_device; c < n_chunks; ++c) place(c, Payload::param);
      for (ChunkId c = on_device; c < n_chunks; ++c) place(c, Payload::accum);
      for (ChunkId c = on_device; c < n_chunks; ++c) place(c, Payload::m), place(c, Payload::v);
      if (budgets[2] == 0 && homes_in(p, Tier::nvme) > 0) continue;
      set_minimum_windows(model.layout, model.trace, p);
      const TierBytes need = placement_bytes(model.layout, model.trace, p);
      if (need[0] <= budgets[0] && need[1] <= budgets[1] && need[2] <= budgets[2]) return true;
    }
  return false;
}

// Many budgets of one layout, some of which fit only where classes of sizes share windows.
TEST(PlacementPlannerTest, ATestOfManyBudgetsAgreesWithWhatIsPlaced) {
  int n_fit = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Rng rng(seed, 5);
    const int chunks = 1 + static_cast<int>(rng.below(0, 40));
    const Model model =
        model_of(chunks, static_cast<int>(rng.below(1, static_cast<std::uint64_t>(chunks) + 1)));
    const PlacementTest test(model.layout, model.trace);
    for (std::uint64_t i = 0; i < 40; ++i) {
      const auto bytes = [&](std::uint64_t tier) {
        return kPage * rng.below(10 + 3 * i + tier, 16 + 24 * static_cast<std::uint64_t>(chunks));
      };
      const PlacementRequest request{{bytes(0), bytes(1), i % 3 == 0 ? 0 : bytes(2)},
                                     static_cast<PlacementPolicy>(i % 4)};
      const bool is_placed = find_placement(model.layout, model.trace, request).has_value();
      EXPECT_EQ(test.fits(request), is_placed) << "seed " << seed << ", request " << i;
      n_fit += is_placed ? 1 : 0;
    }
  }
  EXPECT_GT(n_fit, 200);
  EXPECT_LT(n_fit, 1400);
}

TEST(PlacementPlannerTest, RandomBudgetsFitOrAreRefusedWithMinimumBudgets) {
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Rng rng(seed, 4);
    const int chunks = 1 + static_cast<int>(rng.below(0, 9));
    const Model model =
        model_of(chunks, static_cast<int>(rng.below(1, static_cast<std::uint64_t>(chunks) + 1)),
                 1 + static_cast<std::int32_t>(rng.below(2, 3)));
    const auto policy = static_cast<PlacementPolicy>(rng.below(3, 4));
    const auto bytes = [&](std::uint64_t i) {
      return rng.below(i + 30, 6) == 0 ? kUnlimited : kPage * rng.below(i, 12 + 4 * rng.below(i + 10, 60));
    };
    const PlacementRequest request{{bytes(4), bytes(5), rng.below(6, 3) == 0 ? 0 : bytes(7)},
                                   policy,
                                   static_cast<std::uint32_t>(rng.below(8, 4))};
    const auto placement = plan_placement(model.layout, model.trace, request);
    if (placement.has_value()) {
      expect_within(model, *placement, request.budgets);
    } else {
      ++refused;
      EXPECT_FALSE(policy == PlacementPolicy::automatic && any_placement_fits(model, request.budgets))
          << "seed " << seed;
      const TierBytes enough = minimum_budgets(model.layout, model.trace, request);
      EXPECT_TRUE(fits(model, request, enough)) << "seed " << seed;
      for (std::size_t t = 0; t < kTiers; ++t) {
        EXPECT_GE(enough[t], request.budgets[t])
            << "seed " << seed << ", " << to_string(static_cast<Tier>(t));
        TierBytes less = enough;
        less[t] -= std::min(less[t], kPage);
        EXPECT_FALSE(enough[t] > request.budgets[t] && fits(model, request, less))
            << "seed " << seed << ", " << to_string(static_cast<Tier>(t));
      }
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace strata
