#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <iostream>
#include <limits>

#include <strata/runtime/str.h>

#include "engine/states.h"
#include "engine/tiny_run.h"

// Every step mode gives the same bits as serial.

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;

// bench/claims/step_parity compares more steps of more models.
const char* parity_steps_asked() { return std::getenv("STEP_PARITY_STEPS"); }
int steps_of_modes() { return parity_steps_asked() == nullptr ? 6 : std::atoi(parity_steps_asked()); }

struct Model {
  const char* family;
  DType compute;
  std::int32_t grad_accum;
  double ema_decay = 0;
};

/// Clipping: 0 for never, else the maximum norm. Overflows: in f16 the loss scale of every third step is far
/// too high; otherwise every fourth step has an infinite parameter and is skipped.
struct Scenario {
  double clip = 0;
  bool overflows = false;
};

struct RunRecord {
  std::vector<std::uint64_t> bits;  ///< loss and norm of every step, and how it ended
  std::string digest;
  int clipped = 0, skipped = 0, overflow_retries = 0;
  std::int32_t speculated = 0, rolled_back = 0;
  std::vector<double> norms;
};

enum class Homes : std::uint8_t { device, ram, all_three, hybrid };
constexpr std::array<const char*, 4> kHomeNames = {"device", "ram", "all three", "hybrid"};

void assign_homes(Homes tiers, const ChunkLayout& layout, Placement& placement) {
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload :
         {Payload::param, Payload::master, Payload::m, Payload::v, Payload::ema, Payload::accum}) {
      if (!layout.has(chunk, payload)) continue;
      Tier home = Tier::pinned;
      if (tiers == Homes::device || (tiers == Homes::hybrid && chunk < layout.n_chunks() / 3))
        home = Tier::device;
      if (tiers == Homes::all_three)
        home = chunk % 4 == 0                                                    ? Tier::device
               : chunk % 4 == 1 || (chunk % 4 == 2 && payload != Payload::param) ? Tier::nvme
                                                                                 : Tier::pinned;
      placement.homes[chunk][static_cast<std::size_t>(payload)] = home;
    }
}

SessionOptions options_of(const Model& model, const Scenario& scenario, StepMode mode) {
  SessionOptions options;
  options.step_mode = mode;
  options.undo_bytes = kUnlimited;
  options.grad_accum = model.grad_accum;
  options.clip = scenario.clip;
  options.optimizer.weight_decay = 0.1;
  options.optimizer.ema_decay = model.ema_decay;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  options.non_finite = NonFinite::skip;
  return options;
}

// Takes a step with an infinite parameter, whose gradient cannot be finite, and then restores the parameter.
void step_without_a_gradient(Engine& engine, BatchSource& batches, StepReport& report) {
  const test::StateTensors before = test::states_of(engine, Payload::param);
  test::StateTensors broken = before;
  broken.begin()->second.front() = std::numeric_limits<float>::infinity();
  must(engine.fill(Payload::param, test::fill_from(broken)));
  must(engine.train_step(batches, 1e-2, report));
  EXPECT_TRUE(report.skipped);
  EXPECT_EQ(test::states_of(engine, Payload::param), broken);
  must(engine.fill(Payload::param, test::fill_from(before)));
}

RunRecord record_run(const Model& model, const Scenario& scenario, TinyRun& run) {
  must(run.engine->initialize(5));
  test::CountingBatches batches(test::tiny_config().vocab);
  RunRecord record;
  for (int step = 0; step < steps_of_modes(); ++step) {
    StepReport report;
    if (scenario.overflows && model.compute != DType::f16 && step % 4 == 2) {
      step_without_a_gradient(*run.engine, batches, report);
    } else {
      if (scenario.overflows && model.compute == DType::f16 && step % 3 == 1)
        run.engine->set_loss_scale({.value = LossScale::kMax});
      must(run.engine->train_step(batches, 1e-2, report));
    }
    if (!report.skipped) {  // NaNs may differ in their bits
      record.bits.push_back(std::bit_cast<std::uint32_t>(report.loss));
      record.bits.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
    }
    record.bits.push_back(static_cast<std::uint64_t>(report.overflow_retries) * 2 + (report.skipped ? 1 : 0));
    record.clipped += report.clip_factor < 1;
    record.skipped += report.skipped;
    record.overflow_retries += report.overflow_retries;
    record.speculated += report.speculated;
    record.rolled_back += report.rolled_back;
    if (!report.skipped) record.norms.push_back(report.grad_norm);
    if (step == 3)  // while an update is pending
      record.bits.push_back(std::bit_cast<std::uint64_t>(must(run.engine->evaluate(batches, 1))));
  }
  record.digest = must(run.engine->state_digest());
  EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak);
  return record;
}

RunRecord run_of(const Model& model, const Scenario& scenario, StepMode mode, Homes tiers,
                 const std::string& dir, const HostBackendOptions& backend) {
  SessionOptions options = options_of(model, scenario, mode);
  options.nvme.dirs = {dir};
  options.nvme.engine = IoEngine::threads;
  TinyRun run(
      must(Engine::plan_with(
          tiny_programs(Recompute::none, 3, test::tiny_of_family(model.family), model.compute), options,
          [&](const ChunkLayout& layout, Placement& placement) { assign_homes(tiers, layout, placement); })),
      2, backend);
  return record_run(model, scenario, run);
}

class StepModeTest : public ::testing::TestWithParam<Model> {
 protected:
  static constexpr HostBackendOptions kThreads{};
  static constexpr HostBackendOptions kChecked{.schedule = StreamSchedule::latest_legal, .check = true};

  // Clips no step, about half of the steps (at the median of the norms), and every step.
  static std::vector<Scenario> scenarios(const Model& model) {
    const test::TempDir dir;
    std::vector<double> norms =
        run_of(model, {}, StepMode::serial, Homes::device, dir.path(), kThreads).norms;
    std::sort(norms.begin(), norms.end());
    const double median = norms[norms.size() / 2];
    return {{0, false}, {median, false}, {1e-6, false}, {0, true}, {median, true}};
  }
};

TEST_P(StepModeTest, EveryModeGivesTheBitsOfTheSerialOne) {
  const Model& model = GetParam();
  const test::TempDir dir;
  std::int32_t right = 0, wrong = 0, runs = 0;
  const std::vector<Scenario> all = scenarios(model);
  for (std::size_t c = 0; c < all.size(); ++c) {
    const Scenario& scenario = all[c];
    const RunRecord want = run_of(model, scenario, StepMode::serial, Homes::device, dir.path(), kThreads);
    EXPECT_EQ(want.clipped > 0, scenario.clip > 0) << "scenario " << c;
    EXPECT_EQ(want.clipped == steps_of_modes(), c == 2) << "scenario " << c;
    EXPECT_EQ(want.overflow_retries + want.skipped > 0, scenario.overflows) << "scenario " << c;
    for (const StepMode mode : kStepModes)
      for (const Homes tiers : {Homes::device, Homes::ram, Homes::all_three, Homes::hybrid}) {
        // Half of the runs use the latest legal order of streams and check every access.
        const bool checked = (static_cast<int>(mode) + static_cast<int>(tiers)) % 2 == 0;
        const RunRecord got = run_of(model, scenario, mode, tiers, dir.path(), checked ? kChecked : kThreads);
        const std::string where =
            str("scenario ", c, ", ", to_string(mode), ", ", kHomeNames[static_cast<std::size_t>(tiers)]);
        EXPECT_EQ(got.bits, want.bits) << where;
        EXPECT_EQ(got.digest, want.digest) << where;
        const bool speculates = mode == StepMode::speculative || mode == StepMode::hybrid;
        EXPECT_EQ(got.speculated > 0, tiers != Homes::device && (speculates || got.speculated > 0)) << where;
        EXPECT_TRUE(got.speculated == 0 || speculates || mode == StepMode::automatic) << where;
        ++runs;
        right += got.speculated - got.rolled_back;
        wrong += got.rolled_back;
      }
  }
  EXPECT_GT(right, 0);
  EXPECT_GT(wrong, 0);
  std::cout << "runs compared: " << runs << "\n";
}

std::string model_name(const ::testing::TestParamInfo<Model>& test) {
  return str(test.param.family, "_", to_string(test.param.compute), "_accum", test.param.grad_accum,
             test.param.ema_decay > 0 ? "_ema" : "");
}
// Every pair of family, dtype, accumulation and average.
std::vector<Model> models() {
  std::vector<Model> some = {{"gpt2", DType::f32, 1, 0.9},      {"gpt2", DType::bf16, 4},
                             {"gpt2", DType::f16, 1},           {"llama", DType::f32, 4},
                             {"llama", DType::bf16, 1, 0.9},    {"llama", DType::f16, 4, 0.9},
                             {"qwen2_moe", DType::bf16, 4, 0.9}};
  const Model others[] = {{"gpt2", DType::f32, 1},   {"gpt2", DType::f32, 4},
                          {"gpt2", DType::bf16, 1},  {"llama", DType::f32, 1},
                          {"llama", DType::bf16, 1}, {"llama", DType::bf16, 4},
                          {"llama", DType::f16, 1},  {"gpt2", DType::bf16, 3, 0.9},
                          {"llama", DType::f16, 4},  {"gpt2", DType::f16, 1, 0.9}};
  if (parity_steps_asked() != nullptr) some.insert(some.end(), std::begin(others), std::end(others));
  return some;
}
INSTANTIATE_TEST_SUITE_P(Models, StepModeTest, ::testing::ValuesIn(models()), model_name);

// --- traffic of a step ---

// If the device has room for all parameters, each is copied up once per step, and each gradient down once, in
// every mode.
TEST(StepTrafficTest, EachParameterGoesUpOnceAndEachGradientDownOnce) {
  for (const StepMode mode : kStepModes) {
    SessionOptions options;
    options.policy = PlacementPolicy::pinned;
    options.step_mode = mode;
    options.undo_bytes = kUnlimited;
    options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
    TinyRun run(
        must(Engine::plan(tiny_programs(Recompute::none, 3, test::tiny_config(), DType::bf16), options)), 2,
        {});
    std::uint64_t up = 0, down = sizeof(float);  // the loss
    for (ChunkId chunk = 0; chunk < run.plan->layout.n_chunks(); ++chunk) {
      up += run.plan->layout.payload_bytes(chunk, Payload::param);
      down += run.plan->layout.payload_bytes(chunk, Payload::grad);
    }
    for (const LoweredProgram::Binding& end : run.plan->of(ProgramRole::train).bindings)
      if (end.is_input)
        up += static_cast<std::uint64_t>(end.operand.shape.n_elems()) * size_of(end.operand.dtype);
    must(run.engine->initialize(1));
    run.train(2);
    const MovedBytes before = run.engine->moved();
    run.train(3);
    EXPECT_EQ(run.engine->moved().h2d - before.h2d, 3 * up) << to_string(mode);
    EXPECT_EQ(run.engine->moved().d2h - before.d2h, 3 * down) << to_string(mode);
  }
}

// Snapshots on nvme take space there. As long as nothing is clipped, the traffic is that of two_phase, except
// that two_phase reads a parameter into RAM once for both its update and the next forward.
TEST(StepTrafficTest, SpeculatingOverNvmeMovesWhatTheOtherModesMove) {
  const test::TempDir dir;
  SessionOptions options;
  options.policy = PlacementPolicy::nvme;
  options.clip = 0;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  options.nvme.dirs = {dir.path()};
  options.nvme.engine = IoEngine::threads;
  constexpr int kStoredSteps = 12;
  std::array<std::uint64_t, 2> read{}, written{}, held{};
  std::uint64_t param_bytes = 0, on_its_way = 0;
  for (const std::size_t speculates : {0u, 1u}) {
    options.step_mode = speculates ? StepMode::speculative : StepMode::two_phase;
    options.undo_bytes = kUnlimited;
    TinyRun run(must(Engine::plan(tiny_programs(), options)), 2, {});
    must(run.engine->initialize(1));
    run.train(2);
    const MovedBytes before = run.engine->moved();
    StepReport report;
    test::CountingBatches batches(test::tiny_config().vocab);
    for (int step = 0; step < kStoredSteps; ++step) must(run.engine->train_step(batches, 1e-2, report));
    EXPECT_EQ(report.speculated > 0, speculates == 1);
    must(run.engine->state_digest());  // completes the pending update
    for (const SizeClass& slots : run.plan->placement.classes)
      on_its_way = std::max<std::uint64_t>(on_its_way, slots.slot_bytes * slots.window[2]);
    for (ChunkId chunk = 0; speculates && chunk < run.plan->layout.n_chunks(); ++chunk)
      if (run.plan->undo.covers(chunk)) param_bytes += run.plan->layout.payload_bytes(chunk, Payload::param);
    read[speculates] = run.engine->moved().nvme_read - before.nvme_read;
    written[speculates] = run.engine->moved().nvme_write - before.nvme_write;
    held[speculates] = run.plan->planned_peak[static_cast<std::size_t>(Tier::nvme)];
    EXPECT_EQ(run.plan->undo.bytes, 0u);  // no covered states are in RAM
    EXPECT_EQ(run.plan->undo.covers(static_cast<ChunkId>(run.plan->layout.n_chunks() - 1)), speculates == 1);
  }
  // Transfers in flight when the bytes are counted may be in either count.
  EXPECT_LE(written[1], written[0] + on_its_way);
  EXPECT_LE(read[1], read[0] + kStoredSteps * param_bytes + on_its_way);
  EXPECT_GT(held[1], held[0]);

  options.budgets[static_cast<std::size_t>(Tier::nvme)] = held[0];  // leaves no room for second generations
  const auto tight = must(Engine::plan(tiny_programs(), options));
  EXPECT_EQ(tight->planned_peak[static_cast<std::size_t>(Tier::nvme)], held[0]);
  for (ChunkId chunk = 0; chunk < tight->layout.n_chunks(); ++chunk) EXPECT_FALSE(tight->undo.covers(chunk));
}

TEST(StepTrafficTest, GradientsOnTheDeviceChangeNoBitAndSaveRam) {
  SessionOptions options;
  options.policy = PlacementPolicy::pinned;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  options.undo_bytes = kUnlimited;
  std::string want;
  std::uint64_t ram = 0;
  for (const GradientPolicy gradients : {GradientPolicy::automatic, GradientPolicy::device})
    for (const StepMode mode : kStepModes) {
      options.gradients = gradients;
      options.step_mode = mode;
      TinyRun run(must(Engine::plan(tiny_programs(), options)));
      must(run.engine->initialize(1));
      run.train(3);
      const std::string got = must(run.engine->state_digest());
      if (want.empty()) want = got;
      EXPECT_EQ(got, want) << to_string(mode);
      if (mode != StepMode::serial) continue;
      std::uint64_t sum_bytes = 0;
      for (ChunkId chunk = 0; chunk < run.plan->layout.n_chunks(); ++chunk)
        sum_bytes += run.plan->layout.payload_bytes(chunk, Payload::accum);
      if (gradients == GradientPolicy::automatic) ram = run.plan->planned_peak[1];
      if (gradients == GradientPolicy::device) {
        EXPECT_LE(run.plan->planned_peak[1], ram - sum_bytes / 2);
      }
    }
}

// --- the undo log ---

std::unique_ptr<const RunPlan> plan_in_ram(const SessionOptions& options) {
  return must(Engine::plan(tiny_programs(), options));
}

TEST(UndoLogTest, StaysWithinItsBudgetAndCoversChunksEvenlyOverTheModel) {
  SessionOptions options;
  options.policy = PlacementPolicy::pinned;
  options.chunk_elems = 2 * ChunkLayout::kSliceAlign;
  options.step_mode = StepMode::speculative;
  const auto all = plan_in_ram(options);
  const std::size_t n = all->layout.n_chunks();
  std::size_t bytes = 0, covered = 0;
  for (ChunkId chunk = 0; chunk < n; ++chunk)
    for (const Payload payload : kPersistentPayloads) {
      bytes += all->layout.payload_bytes(chunk, payload);
      if (all->undo.covers(chunk)) covered += all->layout.payload_bytes(chunk, payload);
    }
  EXPECT_EQ(all->undo.bytes, covered);  // 12 bytes per parameter
  // The log covers backward's share of the step, two thirds, up to one chunk.
  EXPECT_GE(covered, bytes * 3 / 5);
  EXPECT_LE(covered, bytes * 3 / 4);

  options.undo_bytes = covered / 2;
  const auto half = plan_in_ram(options);
  EXPECT_LE(half->undo.bytes, covered / 2);
  EXPECT_GT(half->undo.bytes, covered / 4);
  std::array<int, 2> in_half{};  // covered chunks in each half of the model
  for (ChunkId chunk = 0; chunk < n; ++chunk) in_half[2 * chunk < n ? 0 : 1] += half->undo.covers(chunk);
  EXPECT_LE(std::abs(in_half[0] - in_half[1]), 1);
  EXPECT_LT(half->planned_peak[1], all->planned_peak[1]);

  options.undo_bytes.reset();
  options.budgets[1] = half->planned_peak[1];
  EXPECT_LE(plan_in_ram(options)->undo.bytes, covered / 2);  // within what the budget leaves

  options.budgets[1] = kUnlimited;
  for (const StepMode mode : {StepMode::serial, StepMode::two_phase, StepMode::automatic}) {
    options.step_mode = mode;
    EXPECT_EQ(plan_in_ram(options)->undo.bytes, 0u) << to_string(mode);
  }
}

TEST(UndoLogTest, AutoStopsSpeculatingWhereStepsAreClipped) {
  SessionOptions options;
  options.policy = PlacementPolicy::pinned;
  options.undo_bytes = kUnlimited;
  options.clip = 1e-6;
  TinyRun clipped(plan_in_ram(options));
  options.clip = 0;
  TinyRun free(plan_in_ram(options));
  for (TinyRun* run : {&clipped, &free}) must(run->engine->initialize(1));
  test::CountingBatches batches(test::tiny_config().vocab);
  StepReport of_clipped, of_free;
  for (int step = 0; step < 4; ++step) {
    must(clipped.engine->train_step(batches, 1e-2, of_clipped));
    must(free.engine->train_step(batches, 1e-2, of_free));
    EXPECT_EQ(of_clipped.speculated, 0);
  }
  EXPECT_GT(of_free.speculated, 0);
  EXPECT_EQ(of_free.rolled_back, 0);
}

// A step that fails during speculative updates leaves the states as they were.
TEST(UndoLogTest, AStepThatFailsDuringSpeculationIsRolledBack) {
  class Failing final : public BatchSource {
   public:
    Status fill(std::int64_t, const BatchView&) override {
      return Status::error(Code::io_error, "no more data");
    }
    std::int64_t n_counted(std::int64_t, std::int64_t) override { return test::CountingBatches::kTokens; }
  } failing;
  SessionOptions options;
  options.policy = PlacementPolicy::pinned;
  options.step_mode = StepMode::speculative;
  TinyRun run(plan_in_ram(options));
  must(run.engine->initialize(1));
  run.train(2);
  StepReport report;
  // While an update is pending.
  EXPECT_EQ(run.engine->train_step(failing, 1e-2, report).code(), Code::io_error);
  TinyRun straight(plan_in_ram(options));
  must(straight.engine->initialize(1));
  straight.train(2);
  EXPECT_EQ(must(run.engine->state_digest()), must(straight.engine->state_digest()));
  EXPECT_EQ(run.train(2), straight.train(2));
}

}  // namespace
}  // namespace strata
