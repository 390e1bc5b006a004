#include <gtest/gtest.h>

#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;

struct Outcome {
  std::vector<float> losses;
  std::string digest;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Every chunk's homes drawn by `seed`: the whole set on the device, or each payload in RAM or on nvme; sums
// anywhere.
void random_homes(std::uint64_t seed, const ChunkLayout& layout, Placement& placement) {
  const Rng rng(seed, 1);
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::m, Payload::v, Payload::accum}) {
      const bool on_device = rng.below(chunk * 8 + 7, 3) == 0;
      const bool in_ram = rng.below(chunk * 8 + static_cast<std::uint64_t>(payload), 2) == 0;
      const bool sum_on_device = payload == Payload::accum && rng.below(chunk * 8 + 6, 3) == 0;
      placement.homes[chunk][static_cast<std::size_t>(payload)] = on_device || sum_on_device ? Tier::device
                                                                  : in_ram                   ? Tier::pinned
                                                                                             : Tier::nvme;
    }
}

Outcome reference(const DecoderConfig& config) {
  EngineOptions options;
  options.grad_accum = 2;
  TinyRun run(must(Engine::plan(tiny_programs(false, 3, config), options)), 1);
  must(run.engine->initialize(5));
  Outcome out;
  out.losses = run.train(3);
  out.digest = must(run.engine->state_digest());
  return out;
}

Outcome placed(const DecoderConfig& config, std::uint64_t seed, const std::string& dir) {
  const Rng rng(seed, 2);
  EngineOptions options;
  options.grad_accum = 2;
  options.chunk_elems = ChunkLayout::kSliceAlign * static_cast<std::int64_t>(1 + rng.below(0, 4));
  options.prefetch = static_cast<std::uint32_t>(rng.below(1, 5));
  options.nvme.dirs = {dir};
  options.nvme.engine = rng.below(2, 2) == 0 ? IoEngine::threads : IoEngine::automatic;
  auto plan = must(Engine::plan_with(
      tiny_programs(rng.below(3, 2) == 0, 3, config), options,
      [&](const ChunkLayout& layout, Placement& placement) { random_homes(seed, layout, placement); }));
  const bool threaded = rng.below(4, 2) == 0;
  TinyRun run(std::move(plan), 1 + static_cast<int>(rng.below(5, 3)),
              threaded ? HostBackendOptions{}
                       : HostBackendOptions{.schedule = Schedule::latest_legal, .check = true});
  must(run.engine->initialize(5));
  Outcome out;
  out.losses = run.train(3);
  out.digest = must(run.engine->state_digest());
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak) << "seed " << seed;
  return out;
}

class PlacementIdentityTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(PlacementIdentityTest, SixtyFourRandomPlacementsGiveTheSameBits) {
  const DecoderConfig config = test::tiny_of_family(GetParam());
  const Outcome want = reference(config);
  const test::TempDir dir;
  for (std::uint64_t seed = 1; seed <= 64; ++seed)
    ASSERT_EQ(placed(config, seed, dir.path()), want) << "placement seed " << seed;
}

// One with every op of the older families, one with those of the newer.
INSTANTIATE_TEST_SUITE_P(Families, PlacementIdentityTest, ::testing::Values("gpt2", "qwen3"),
                         [](const auto& test_case) { return std::string(test_case.param); });

}  // namespace
}  // namespace strata
