// Tests what comes between steps: micro-batches that a step leaves out, and updates that advance under other
// passes.
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/random_homes.h"
#include "engine/states.h"
#include "engine/tiny_run.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::TinyRun;
using ::testing::HasSubstr;

/// The first of a step's four micro-batches have no target: as many as the step's number allows.
class PartlyEmpty final : public BatchSource {
 public:
  explicit PartlyEmpty(bool says_so) : says_so_(says_so) {}
  Status fill(std::int64_t index, const BatchView& batch) override {
    ++filled;
    batches_.counts = [](std::int64_t k, std::size_t) { return k % 4 >= (k / 4) % 4; };
    return batches_.fill(index, batch);
  }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override {
    return static_cast<std::int64_t>(test::CountingBatches::kTokens) * (n - (index / 4) % 4);
  }
  std::int64_t n_empty(std::int64_t index, std::int64_t /*n*/) override {
    return says_so_ ? wrong.value_or((index / 4) % 4) : 0;
  }
  int filled = 0;
  std::optional<std::int64_t> wrong;

 private:
  const bool says_so_;
  test::CountingBatches batches_{test::tiny_config().vocab};
};

SessionOptions four_micro_batches() {
  SessionOptions options;
  options.grad_accum = 4;
  options.chunk_elems = 4096;
  return options;
}

std::vector<float> losses_of(Engine& engine, PartlyEmpty& source, int steps) {
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    StepReport report;
    must(engine.train_step(source, 1e-2, report));
    losses.push_back(report.loss);
  }
  return losses;
}

TEST(PassOrderTest, AStepThatLeavesOutEmptyMicroBatchesHasTheBitsOfOneThatDoesNot) {
  TinyRun whole(must(Engine::plan(test::tiny_programs(), four_micro_batches())));
  must(whole.engine->initialize(1));
  PartlyEmpty computes(false);
  const std::vector<float> expected = losses_of(*whole.engine, computes, 7);
  EXPECT_EQ(computes.filled, 28);
  const test::StateTensors params = test::states_of(*whole.engine, Payload::param);
  const test::TempDir dir;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SessionOptions options = test::swapping_options(dir.path(), static_cast<StepMode>(seed % 5));
    options.grad_accum = 4;
    options.chunk_elems = 4096;
    options.undo_bytes = kUnlimited;
    const auto homes = [&](const ChunkLayout& layout, Placement& placement) {
      test::random_homes(seed, layout, placement);
    };
    TinyRun run(must(Engine::plan_with(test::tiny_programs(), options, homes)));
    must(run.engine->initialize(1));
    PartlyEmpty leaves_out(true);
    EXPECT_EQ(losses_of(*run.engine, leaves_out, 7), expected) << "seed " << seed;
    EXPECT_EQ(leaves_out.filled, 4 + 3 + 2 + 1 + 4 + 3 + 2);
    EXPECT_EQ(test::states_of(*run.engine, Payload::param), params) << "seed " << seed;
  }
}

TEST(PassOrderTest, ASourceWhoseMicroBatchesAreAllEmptyIsAnError) {
  TinyRun run(must(Engine::plan(test::tiny_programs(), four_micro_batches())));
  must(run.engine->initialize(1));
  PartlyEmpty source(true);
  source.wrong = 4;
  StepReport report;
  EXPECT_THAT(std::string(run.engine->train_step(source, 1e-2, report).message()),
              HasSubstr("reports 4 empty micro-batches of 4"));
  source.wrong.reset();
  must(run.engine->train_step(source, 1e-2, report));
}

// An update that is pending is done under an evaluation as far as it reads what is updated.
TEST(PassOrderTest, AnEvaluationAfterAStepSeesItsUpdate) {
  TinyRun run(must(Engine::plan(test::tiny_programs(), four_micro_batches())));
  TinyRun waits(must(Engine::plan(test::tiny_programs(), four_micro_batches())));
  PartlyEmpty source(false), same(false);
  test::CountingBatches data(test::tiny_config().vocab);
  for (TinyRun* each : {&run, &waits}) must(each->engine->initialize(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(losses_of(*run.engine, source, 1), losses_of(*waits.engine, same, 1));
    (void)test::states_of(*waits.engine, Payload::m);  // completes the update
    EXPECT_EQ(must(run.engine->evaluate(data, 2)), must(waits.engine->evaluate(data, 2)));
    const std::vector<std::int32_t> tokens(16, 3);
    const auto a = must(run.engine->infer(tokens, 15)), b = must(waits.engine->infer(tokens, 15));
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
  }
  EXPECT_EQ(test::states_of(*run.engine, Payload::param), test::states_of(*waits.engine, Payload::param));
}

}  // namespace
}  // namespace strata
