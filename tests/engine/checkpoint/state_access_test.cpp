// States read back as they were written: in pieces, in every format, on every tier.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include <strata/session/checkpoint.h>

#include "engine/states.h"
#include "engine/tiny_run.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::TinyRun;

constexpr std::int64_t kLarge = 2100 * 32;  // elements of the token table, which takes two pieces

DecoderConfig with_a_large_tensor() {
  DecoderConfig config = test::tiny_config();
  config.vocab = 2100;
  return config;
}

struct AccessCase {
  const char* name;
  DType compute;
  PlacementPolicy policy;
};

class StateAccessTest : public ::testing::TestWithParam<AccessCase> {
 protected:
  SessionOptions options() const {
    SessionOptions options;
    options.policy = GetParam().policy;
    options.nvme.dirs = {dir.path()};
    options.optimizer.ema_decay = 0.9;
    return options;
  }
  TinyRun run_of(const DecoderConfig& config) const {
    return TinyRun(
        must(Engine::plan(test::tiny_programs(Recompute::none, 3, config, GetParam().compute), options())));
  }
  const test::TempDir dir;
};

TEST_P(StateAccessTest, InitialValuesDependOnTheElementsIndexInItsTensor) {
  const TinyRun run = run_of(with_a_large_tensor());
  must(run.engine->initialize(5));
  const test::StateTensors params = test::states_of(*run.engine, Payload::param);
  const auto& specs = run.plan->tensors.specs;
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const Init& init = run.plan->init_of_tensor[t];
    const Rng rng(5, static_cast<std::uint64_t>(run.plan->tensors.param_of_tensor[t]));
    std::vector<float> want(static_cast<std::size_t>(specs[t].n_elems));
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] = init.std == 0 ? init.mean : init.mean + init.std * rng.normal(i);
    EXPECT_EQ(test::differing_bits(params.at(specs[t].name), want), 0u) << specs[t].name;
  }
}

TEST_P(StateAccessTest, StatesFilledInPiecesAreVisitedInTheSamePieces) {
  const TinyRun run = run_of(with_a_large_tensor());
  must(run.engine->initialize(5));
  for (const Payload payload : kCheckpointPayloads) {
    test::StateTensors given;
    for (const LayoutTensor& spec : run.plan->tensors.specs)
      given[spec.name] = test::Values(7 + static_cast<std::uint64_t>(payload)).floats(spec.n_elems);
    must(run.engine->fill(payload, test::fill_from(given)));
    std::vector<std::int64_t> begins;
    must(run.engine->visit(payload, [&](const StatePiece& piece, std::span<const float>) {
      if (piece.n_elems == kLarge) begins.push_back(piece.offset);
      return Status::ok();
    }));
    EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 65536}));
    EXPECT_EQ(test::states_of(*run.engine, payload), given) << to_string(payload);
  }
}

TEST_P(StateAccessTest, AResumedRunHasTheBitsOfTheUninterruptedOne) {
  SessionOptions on_the_device;
  on_the_device.optimizer.ema_decay = options().optimizer.ema_decay;
  TinyRun straight(must(Engine::plan(
      test::tiny_programs(Recompute::full, 3, test::tiny_config(), GetParam().compute), on_the_device)));
  must(straight.engine->initialize(3));
  straight.train(4);
  TinyRun first = run_of(test::tiny_config());
  must(first.engine->initialize(3));
  first.train(2);
  const std::string saved = must(save_checkpoint(*first.engine, posix_io(), dir.file("saved"), {}, 0));
  TinyRun second = run_of(test::tiny_config());
  must(load_checkpoint(*second.engine, posix_io(), saved));
  EXPECT_EQ(must(second.engine->state_digest()), must(first.engine->state_digest()));
  second.train(2);
  EXPECT_EQ(must(second.engine->state_digest()), must(straight.engine->state_digest()));
}

TEST_P(StateAccessTest, ARunThatOnlyEvaluatesLoadsOnlyParametersButChecksAllFiles) {
  TinyRun trained = run_of(test::tiny_config());
  must(trained.engine->initialize(3));
  trained.train(2);
  test::CountingBatches batches(test::tiny_config().vocab);
  const double want = must(trained.engine->evaluate(batches, 2));
  const std::string saved = must(save_checkpoint(*trained.engine, posix_io(), dir.file("saved"), {}, 0));
  ProgramSet set;
  set[ProgramRole::eval] =
      test::tiny_programs(Recompute::none, 3, test::tiny_config(), GetParam().compute)[ProgramRole::eval];
  TinyRun other(must(Engine::plan(set, options())));
  must(load_checkpoint(*other.engine, posix_io(), saved));
  EXPECT_EQ(must(other.engine->evaluate(batches, 2)), want);
  EXPECT_EQ(other.engine->visit(Payload::m, [](const auto&, auto) { return Status::ok(); }).code(),
            Code::unsupported);
  must(write_text_atomically(posix_io(), saved + "/v.safetensors", "something else"));
  EXPECT_EQ(load_checkpoint(*other.engine, posix_io(), saved).status().code(), Code::corrupt);
}

INSTANTIATE_TEST_SUITE_P(Formats, StateAccessTest,
                         ::testing::Values(AccessCase{"f32", DType::f32, PlacementPolicy::automatic},
                                           AccessCase{"bf16", DType::bf16, PlacementPolicy::automatic},
                                           AccessCase{"bf16_pinned", DType::bf16, PlacementPolicy::pinned},
                                           AccessCase{"bf16_nvme", DType::bf16, PlacementPolicy::nvme},
                                           AccessCase{"f16", DType::f16, PlacementPolicy::automatic},
                                           AccessCase{"f16_nvme", DType::f16, PlacementPolicy::nvme}),
                         [](const auto& test) { return std::string(test.param.name); });

// For states on the device.
TEST(StateStagingTest, TheNextRunIsCopiedWhileOneIsVisited) {
  SessionOptions options;
  options.state_run = 1024;
  const TinyRun run(
      must(Engine::plan(test::tiny_programs(Recompute::none, 3, with_a_large_tensor()), options)), 2,
      {.schedule = StreamSchedule::threads});
  must(run.engine->initialize(5));
  const std::uint64_t before = run.backend->counters().copies;
  const auto ahead = [&] { return run.backend->counters().copies - before; };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool is_first = true;
  must(run.engine->visit(Payload::m, [&](const StatePiece&, std::span<const float>) {
    while (is_first && ahead() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (is_first) {
      EXPECT_EQ(ahead(), 2u) << "one a run where moments are kept in f32";
    }
    is_first = false;
    return Status::ok();
  }));
}

TEST(StateStagingTest, RunsOfAnySizeGiveTheSameStatesInFewerCopies) {
  for (const StateFormat states : {StateFormat::fp32, StateFormat::bf16, StateFormat::int8})
    for (const DType compute : {DType::f32, DType::bf16}) {
      std::string digest;
      std::uint64_t copies = 0;
      for (const std::int64_t state_run : {0, 300, 1024, 1 << 20}) {
        SessionOptions options;
        options.states = states;
        options.state_run = state_run;
        TinyRun run(must(
            Engine::plan(test::tiny_programs(Recompute::none, 3, with_a_large_tensor(), compute), options)));
        must(run.engine->initialize(5));
        run.train(2);
        const std::uint64_t before = run.backend->counters().copies;
        const std::string found = must(run.engine->state_digest());
        if (digest.empty()) digest = found;
        EXPECT_EQ(found, digest) << state_run;
        const std::uint64_t taken = run.backend->counters().copies - before;
        if (state_run > 300) {
          EXPECT_LT(taken, copies) << state_run;
        }
        copies = taken;
      }
    }
}

}  // namespace
}  // namespace strata
