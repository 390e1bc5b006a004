#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/runtime/threads/thread_pool.h>
#include <strata/runtime/threads/topology.h>

#include "engine/random_homes.h"
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

// One to three threads, or three on two NUMA nodes; the cores that they run on make no difference here.
std::unique_ptr<ThreadPool> random_pool(const Rng& rng) {
  const auto threads = static_cast<int>(rng.below(5, 4));
  if (threads > 0) return must(ThreadPool::create(threads));
  const Topology machine = must(read_topology());
  CoreShare share;
  share.nodes = {{0, 1, machine.usable_cores.front().cpus}, {1, 2, machine.usable_cores.back().cpus}};
  share.bound = true;
  return must(ThreadPool::create(share));
}

struct PlacementCase {
  const char* family;
  DType compute;
  std::int32_t grad_accum;
  cpuopt::Optimizer optimizer = cpuopt::Optimizer::adamw;
  StateFormat states = StateFormat::fp32;
  std::uint64_t placements = 32;
  std::vector<std::string> freeze = {};
};

SessionOptions options_of(const PlacementCase& which) {
  SessionOptions options;
  options.grad_accum = which.grad_accum;
  options.optimizer.optimizer = which.optimizer;
  options.optimizer.momentum = 0.9;  // used by sgd
  options.optimizer.weight_decay = 0.1;
  options.states = which.states;
  options.rounding_seed = 11;
  return options;
}

ProgramSet programs_of(const PlacementCase& run, Recompute recompute) {
  return tiny_programs(recompute, 3, test::tiny_of_family(run.family), run.compute, run.freeze);
}

Outcome reference(const PlacementCase& which) {
  const SessionOptions options = options_of(which);
  TinyRun run(must(Engine::plan(programs_of(which, Recompute::none), options)), 1);
  must(run.engine->initialize(5));
  Outcome out;
  out.losses = run.train(3);
  out.digest = must(run.engine->state_digest());
  return out;
}

Outcome placed(const PlacementCase& which, std::uint64_t seed, const std::string& dir) {
  const Rng rng(seed, 2);
  SessionOptions options = options_of(which);
  options.chunk_elems = ChunkLayout::kSliceAlign * static_cast<std::int64_t>(1 + rng.below(0, 4));
  options.prefetch = static_cast<std::uint32_t>(rng.below(1, 5));
  options.nvme.dirs = {dir};
  options.nvme.engine = rng.below(2, 2) == 0 ? IoEngine::threads : IoEngine::automatic;
  auto plan = must(Engine::plan_with(
      programs_of(which, kRecomputeModes[rng.below(3, kRecomputeModes.size())]), options,
      [&](const ChunkLayout& layout, Placement& placement) { test::random_homes(seed, layout, placement); }));
  const bool threaded = rng.below(4, 2) == 0;
  TinyRun run(std::move(plan), random_pool(rng),
              threaded ? HostBackendOptions{}
                       : HostBackendOptions{.schedule = StreamSchedule::latest_legal, .check = true});
  must(run.engine->initialize(5));
  Outcome out;
  out.losses = run.train(3);
  out.digest = must(run.engine->state_digest());
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak) << "seed " << seed;
  return out;
}

class PlacementIdentityTest : public ::testing::TestWithParam<PlacementCase> {};

TEST_P(PlacementIdentityTest, RandomPlacementsGiveTheSameBits) {
  const Outcome want = reference(GetParam());
  const test::TempDir dir;
  for (std::uint64_t seed = 1; seed <= GetParam().placements; ++seed)
    ASSERT_EQ(placed(GetParam(), seed, dir.path()), want) << "placement seed " << seed;
}

std::string case_name(const ::testing::TestParamInfo<PlacementCase>& test) {
  const PlacementCase& c = test.param;
  return str(c.family, "_", to_string(c.compute), "_", cpuopt::to_string(c.optimizer), "_",
             to_string(c.states), c.freeze.empty() ? "" : "_frozen");
}

PlacementCase frozen(const char* family, DType compute, std::int32_t grad_accum) {
  PlacementCase frozen{family, compute, grad_accum};
  frozen.placements = 16;
  frozen.freeze = {"tokens.weight", "layers.0.*", "layers.1.mlp_in.weight"};
  return frozen;
}

// Covers families with all ops, tied heads (whose gradient is f32) and untied ones, and accumulated gradients
// of one and of several micro-batches.
INSTANTIATE_TEST_SUITE_P(
    Cases, PlacementIdentityTest,
    ::testing::Values(PlacementCase{"gpt2", DType::f32, 2}, PlacementCase{"qwen3", DType::f32, 2},
                      PlacementCase{"gpt2", DType::bf16, 2}, PlacementCase{"llama", DType::bf16, 1},
                      PlacementCase{"llama", DType::f16, 2}, PlacementCase{"qwen2_moe", DType::f32, 2},
                      PlacementCase{"qwen3_moe", DType::bf16, 1}, PlacementCase{"mixtral", DType::f16, 2},
                      PlacementCase{"gpt_oss", DType::bf16, 2}, frozen("gpt2", DType::bf16, 2),
                      frozen("qwen3", DType::f32, 1), frozen("llama", DType::f16, 2)),
    case_name);

std::vector<PlacementCase> optimizer_cases() {
  std::vector<PlacementCase> cases;
  for (const cpuopt::Optimizer optimizer : cpuopt::all_optimizers())
    for (const StateFormat states : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8})
      cases.push_back({"gpt2", DType::bf16, 2, optimizer, states, 8});
  cases.push_back({"gpt2", DType::f16, 1, cpuopt::Optimizer::lamb, StateFormat::int8, 8});
  cases.push_back({"gpt2", DType::f32, 1, cpuopt::Optimizer::adamw, StateFormat::int8, 8});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Optimizers, PlacementIdentityTest, ::testing::ValuesIn(optimizer_cases()),
                         case_name);

}  // namespace
}  // namespace strata
