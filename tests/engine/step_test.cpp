#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>

#include "engine/states.h"
#include "engine/steady_steps.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;
using testing::HasSubstr;
using Tensors = test::StateTensors;

// Micro-batches starting with `first`.
class LaterBatches final : public BatchSource {
 public:
  explicit LaterBatches(std::int64_t first) : first_(first) {}
  Status fill(std::int64_t index, const BatchView& batch) override {
    return batches_.fill(first_ + index, batch);
  }
  std::int64_t n_counted(std::int64_t, std::int64_t n) override { return 48 * n; }

 private:
  test::CountingBatches batches_{test::tiny_config().vocab};
  std::int64_t first_;
};

// The gradient as the update receives it: with beta1 = 0 it is the first moment after one step.
Tensors seen_gradient(SessionOptions options, std::int64_t first, StepReport& report) {
  options.optimizer.beta1 = 0;
  TinyRun run(must(Engine::plan(tiny_programs(), options)));
  must(run.engine->initialize(11));
  LaterBatches batches(first);
  must(run.engine->train_step(batches, 1e-3, report));
  return test::states_of(*run.engine, Payload::m);
}

Tensors scaled(Tensors tensors, float factor) {
  for (auto& [name, values] : tensors)
    for (float& value : values) value = factor * value;
  return tensors;
}

TEST(StepTest, AccumulationIsTheF32SumInMicroBatchOrderTimesOneFactor) {
  for (const std::int32_t n : {2, 3, 4}) {
    StepReport report;
    Tensors sum = seen_gradient({.clip = 0}, 0, report);
    for (std::int32_t k = 1; k < n; ++k)
      for (const auto& [name, values] : seen_gradient({.clip = 0}, k, report))
        for (std::size_t i = 0; i < values.size(); ++i) sum[name][i] += values[i];
    EXPECT_EQ(seen_gradient({.grad_accum = n, .clip = 0}, 0, report),
              scaled(sum, static_cast<float>(1.0 / n)))
        << n << " micro-batches";
  }
}

TEST(StepTest, AccumulationIsTheSameWhereverItLives) {
  StepReport report;
  const Tensors want = seen_gradient({.grad_accum = 3, .clip = 0}, 0, report);
  SessionOptions off_device{.policy = PlacementPolicy::pinned, .grad_accum = 3, .clip = 0};
  EXPECT_EQ(seen_gradient(off_device, 0, report), want);
}

TEST(StepTest, ClippingScalesEveryElementByOneFactorFromTheGlobalNorm) {
  StepReport free, clipped;
  const Tensors gradient = seen_gradient({.clip = 0}, 0, free);
  EXPECT_EQ(free.clip_factor, 1.0);
  double squares = 0;
  for (const auto& [name, values] : gradient)
    for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(free.grad_norm, std::sqrt(squares), 1e-12 * free.grad_norm);
  const double clip = free.grad_norm / 3;
  const Tensors small = seen_gradient({.clip = clip}, 0, clipped);
  EXPECT_EQ(clipped.grad_norm, free.grad_norm);
  EXPECT_EQ(clipped.clip_factor, clip / (free.grad_norm + 1e-6));
  EXPECT_EQ(small, scaled(gradient, static_cast<float>(clipped.clip_factor)));
  EXPECT_EQ(seen_gradient({.clip = 2 * free.grad_norm}, 0, clipped), gradient);
}

TEST(StepTest, ARunThatOnlyInfersHoldsOnlyParameters) {
  ProgramSet whole = tiny_programs(), only;
  only[ProgramRole::infer] = whole[ProgramRole::infer];
  TinyRun trains(must(Engine::plan(whole, {}))), infers(must(Engine::plan(only, {})));
  must(trains.engine->initialize(3));
  must(infers.engine->initialize(3));
  const std::vector<std::int32_t> tokens(16, 7);
  const auto want = must(trains.engine->infer(tokens, 5)), got = must(infers.engine->infer(tokens, 5));
  EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin(), got.end()));
  EXPECT_EQ(infers.engine->peak_bytes(), infers.plan->planned_peak);
  std::uint64_t parameters = 0;
  for (ChunkId chunk = 0; chunk < infers.plan->layout.n_chunks(); ++chunk)
    parameters += infers.plan->layout.payload_bytes(chunk, Payload::param);
  EXPECT_EQ(infers.plan->placement.bytes(infers.plan->layout, Tier::device), parameters);
  EXPECT_EQ(infers.engine->fill(Payload::m, [](auto, auto) { return Status::ok(); }).code(),
            Code::unsupported);
  EXPECT_EQ(must(infers.engine->state_digest()).size(), 32u);
}

// Micro-batches with 48 and 3 counted targets: all targets weigh the same, whichever micro-batch they are in.
TEST(StepTest, AMicroBatchWeighsAsMuchAsItHasTargets) {
  const auto gradient = [](std::int32_t grad_accum, std::function<bool(std::int64_t, std::size_t)> counts,
                           float& loss) {
    SessionOptions options;
    options.grad_accum = grad_accum;
    options.clip = 0;
    options.optimizer.beta1 = 0;
    TinyRun run(must(Engine::plan(tiny_programs(), options)));
    must(run.engine->initialize(11));
    test::CountingBatches batches(test::tiny_config().vocab);
    batches.counts = std::move(counts);
    StepReport report;
    must(run.engine->train_step(batches, 1e-3, report));
    loss = report.loss;
    return test::states_of(*run.engine, Payload::m);
  };
  float together = 0, first = 0, second = 0, ignored = 0;
  const Tensors sum = gradient(
      2, [](std::int64_t k, std::size_t i) { return k == 0 || i < 3; }, together);
  const Tensors one = gradient(1, {}, first);
  const Tensors other = gradient(
      2, [](std::int64_t k, std::size_t i) { return k == 1 && i < 3; }, second);
  EXPECT_NEAR(together, (first * 48 + second * 3) / 51, 1e-5);
  for (const auto& [name, values] : sum) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double want = (one.at(name)[i] * 48.0 + other.at(name)[i] * 3.0) / 51;
      error += (values[i] - want) * (values[i] - want);
      norm += want * want;
    }
    EXPECT_LE(error, 1e-10 * norm) << name;
  }
  const Tensors none = gradient(
      1, [](std::int64_t, std::size_t) { return false; }, ignored);
  EXPECT_EQ(ignored, 0.0f);
  for (const auto& [name, values] : none)
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float x) { return x == 0; })) << name;
}

TEST(StepTest, AGradientThatIsNotFiniteNamesItsTensorAndChangesNothing) {
  for (const PlacementPolicy policy : {PlacementPolicy::automatic, PlacementPolicy::pinned}) {
    TinyRun run(must(Engine::plan(tiny_programs(Recompute::full), {.policy = policy, .grad_accum = 2})));
    must(run.engine->initialize(1));
    run.train(2);
    Tensors good = test::states_of(*run.engine, Payload::param);
    const FillState fill = test::fill_from(good);
    const float kept =
        std::exchange(good.at("layers.1.mlp_in.weight")[7], std::numeric_limits<float>::infinity());
    must(run.engine->fill(Payload::param, fill));
    const std::string before = must(run.engine->state_digest());
    test::CountingBatches batches(test::tiny_config().vocab);
    StepReport report;
    const Status status = run.engine->train_step(batches, 1e-2, report);
    EXPECT_EQ(status.code(), Code::diverged);
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(
            "the gradient of tokens.weight is not finite; nothing was updated; the loss of micro-batch 1 "
            "is not finite; optim.non_finite=skip skips such steps"));
    EXPECT_EQ(must(run.engine->state_digest()), before);
    EXPECT_EQ(run.engine->steps(), 2);
    good.at("layers.1.mlp_in.weight")[7] = kept;
    must(run.engine->fill(Payload::param, fill));
    EXPECT_TRUE(std::isfinite(run.train(1)[0]));
  }
}

SessionOptions three_tiers(const std::string& dir) {
  SessionOptions options;
  options.budgets = {600 * kKiB, 400 * kKiB, 4 * kMiB};
  options.grad_accum = 2;
  options.nvme.dirs = {dir};
  return options;
}

TEST(StepTest, StepsThreeToTwelveAllocateAndCreateNothingOverThreeTiers) {
  ASSERT_TRUE(AllocCounter::hooked());
  const test::TempDir dir;
  for (const auto& [io, compute] : {std::pair{IoEngine::automatic, DType::f32},
                                    {IoEngine::threads, DType::f32},
                                    {IoEngine::automatic, DType::bf16},
                                    {IoEngine::automatic, DType::f16}}) {
    SessionOptions options = three_tiers(dir.path());
    options.nvme.engine = io;
    const ProgramSet programs = tiny_programs(Recompute::full, 3, test::tiny_config(), compute);
    TinyRun run(must(Engine::plan(programs, options)), 2, HostBackendOptions{});
    EXPECT_GT(run.plan->planned_peak[2], 0u);
    test::expect_steady_steps(run);
  }
}

// The host's GEMMs do not use their workspaces.
TEST(StepTest, GemmWorkspacesAreInThePlanAndChangeNoBit) {
  const ProgramSet bare = tiny_programs(Recompute::full);
  TinyRun without(must(Engine::plan(bare, {}))),
      with(must(Engine::plan(test::with_gemm_workspaces(bare), {})));
  EXPECT_GT(with.plan->planned_peak[0], without.plan->planned_peak[0]);
  for (TinyRun* run : {&without, &with}) must(run->engine->initialize(5));
  EXPECT_EQ(with.train(3), without.train(3));
  EXPECT_EQ(with.engine->peak_bytes(), with.plan->planned_peak);
  EXPECT_EQ(must(with.engine->state_digest()), must(without.engine->state_digest()));
}

TEST(StepTest, ProgramsThatAreMissingOrOfAnotherModelAreRefused) {
  ProgramSet set = tiny_programs();
  set[ProgramRole::eval] = {};
  TinyRun run(must(Engine::plan(set, {})));
  must(run.engine->initialize(1));
  test::CountingBatches batches(test::tiny_config().vocab);
  EXPECT_EQ(run.engine->evaluate(batches, 1).status().code(), Code::unsupported);
  DecoderConfig wider = test::tiny_config();
  wider.ffn = 128;
  set[ProgramRole::eval] = must(record_decoder(wider, 3, DecoderHead::loss));
  EXPECT_THAT(std::string(Engine::plan(set, {}).status().message()),
              HasSubstr("parameter layers.0.mlp_in.weight is [128, 32] in program eval and [64, 32] in "
                        "program train"));
  set = tiny_programs();
  set[ProgramRole::train] = set[ProgramRole::eval];
  EXPECT_THAT(std::string(Engine::plan(set, {}).status().message()),
              HasSubstr("no gradient of parameter tokens.weight"));
}

}  // namespace
}  // namespace strata
