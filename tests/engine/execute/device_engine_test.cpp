// Whole runs on the GPU: results close to the host's, with the same bits for all placements and step modes.
// Skipped without a GPU.
#include <gtest/gtest.h>

#include <cmath>

#include <strata/runtime/backend/cuda_backend.h>
#include <strata/runtime/str.h>

#include "engine/random_homes.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_of_family;
using test::tiny_programs;
using test::TinyRun;

struct DeviceCase {
  const char* family;
  DType compute;
  cpuopt::Optimizer optimizer = cpuopt::Optimizer::adamw;
  StateFormat states = StateFormat::fp32;
};
std::string case_name(const ::testing::TestParamInfo<DeviceCase>& test) {
  const DeviceCase& c = test.param;
  return str(c.family, "_", to_string(c.compute), "_", cpuopt::to_string(c.optimizer), "_",
             to_string(c.states));
}

struct Outcome {
  std::vector<float> losses;
  std::string digest;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

class DeviceEngineTest : public ::testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << cuda_status();
  }

  SessionOptions options() const {
    SessionOptions options;
    options.grad_accum = 2;
    options.optimizer.optimizer = GetParam().optimizer;
    options.optimizer.momentum = 0.9;  // used by sgd
    options.optimizer.weight_decay = 0.1;
    options.states = GetParam().states;
    options.rounding_seed = 11;
    options.chunk_elems = ChunkLayout::kSliceAlign * 2;
    options.nvme.dirs = {dir_.path()};
    return options;
  }
  ProgramSet programs() const {
    return test::with_gemm_workspaces(
        tiny_programs(Recompute::none, 3, tiny_of_family(GetParam().family), GetParam().compute));
  }
  static Outcome train(TinyRun& run, int steps, double lr) {
    must(run.engine->initialize(5));
    Outcome out;
    out.losses = run.train(steps, lr);
    out.digest = must(run.engine->state_digest());
    EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
    return out;
  }
  Outcome on_device(std::unique_ptr<const RunPlan> plan, int steps = 3, double lr = 1e-2) const {
    TinyRun run(std::move(plan), must(ThreadPool::create(2)),
                [](ThreadPool& pool, Clock&) { return must(create_cuda_backend({}, pool)); });
    return train(run, steps, lr);
  }

  test::TempDir dir_;
};

TEST_P(DeviceEngineTest, LearnsAsTheHostDoes) {
  constexpr int kSteps = 20;
  TinyRun host(must(Engine::plan(programs(), options())));
  const std::vector<float> want = train(host, kSteps, 3e-3).losses,
                           got = on_device(must(Engine::plan(programs(), options())), kSteps, 3e-3).losses;
  const double bar = GetParam().compute == DType::f32 ? 1e-3 : 3e-2;
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_LE(std::abs(got[i] - want[i]), bar * std::abs(want[i])) << "step " << i + 1;
}

// States in RAM are updated by the CPU, states on the device by the GPU.
TEST_P(DeviceEngineTest, PlacementsGiveTheSameBits) {
  const Outcome want = on_device(must(Engine::plan(programs(), options())));
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    auto plan =
        must(Engine::plan_with(programs(), options(), [&](const ChunkLayout& layout, Placement& placement) {
          test::random_homes(seed, layout, placement);
        }));
    ASSERT_EQ(on_device(std::move(plan)), want) << "placement seed " << seed;
  }
}

TEST_P(DeviceEngineTest, StepModesGiveTheSameBits) {
  SessionOptions swapping = options();
  swapping.policy = PlacementPolicy::pinned;
  Outcome want;
  for (const StepMode mode : {StepMode::serial, StepMode::two_phase, StepMode::speculative, StepMode::hybrid,
                              StepMode::automatic}) {
    swapping.step_mode = mode;
    const Outcome got = on_device(must(Engine::plan(programs(), swapping)));
    if (mode == StepMode::serial)
      want = got;
    else
      ASSERT_EQ(got, want) << to_string(mode);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceEngineTest,
                         ::testing::Values(DeviceCase{"gpt2", DType::f32}, DeviceCase{"qwen3", DType::f32},
                                           DeviceCase{"gpt2", DType::bf16}, DeviceCase{"llama", DType::bf16},
                                           DeviceCase{"bloom", DType::bf16}, DeviceCase{"glm4", DType::f16},
                                           DeviceCase{"opt", DType::f16}),
                         case_name);

std::vector<DeviceCase> optimizer_cases() {
  std::vector<DeviceCase> cases;
  for (const cpuopt::Optimizer optimizer : cpuopt::all_optimizers())
    for (const StateFormat states : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8})
      if (optimizer != cpuopt::Optimizer::adamw || states != StateFormat::fp32)  // which has cases above
        cases.push_back({"gpt2", DType::bf16, optimizer, states});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Optimizers, DeviceEngineTest, ::testing::ValuesIn(optimizer_cases()), case_name);

}  // namespace
}  // namespace strata
