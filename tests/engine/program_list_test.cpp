// A run's programs are a list: they are run by name, and parameters with one name are one parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/backend/null_backend.h>
#include <strata/runtime/str.h>

#include "engine/states.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::tiny_programs;
using test::TinyRun;
using ::testing::HasSubstr;

/// An evaluation program with one layer more than tiny_programs() has.
NamedProgram deeper() {
  DecoderConfig config = test::tiny_config();
  ++config.layers;
  return {"deeper", ProgramRole::eval, fuse_add_norm(must(record_decoder(config, 3, DecoderHead::loss)))};
}
ProgramSet with_deeper() {
  ProgramSet set = tiny_programs();
  set.add(deeper());
  return set;
}

TEST(ProgramListTest, EvaluationProgramsAreRunByName) {
  TinyRun both(must(Engine::plan(with_deeper(), {})));
  must(both.engine->initialize(1));
  test::CountingBatches batches(test::tiny_config().vocab);
  ProgramSet only;
  only.add(deeper());
  TinyRun alone(must(Engine::plan(only, {})));
  must(alone.engine->initialize(1));
  must(alone.engine->fill(Payload::param, test::fill_from(test::states_of(*both.engine, Payload::param))));
  const double want = must(alone.engine->evaluate(batches, 2));
  EXPECT_EQ(must(both.engine->evaluate(batches, 2, "deeper")), want);
  EXPECT_EQ(must(both.engine->evaluate(batches, 2, "eval")), must(both.engine->evaluate(batches, 2)));
  EXPECT_NE(must(both.engine->evaluate(batches, 2)), want);
  const Status unknown = both.engine->evaluate(batches, 2, "shallow").status();
  EXPECT_EQ(unknown.code(), Code::unsupported);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("shallow"));
  EXPECT_EQ(both.engine->evaluate(batches, 2, "train").status().code(), Code::unsupported);
}

TEST(ProgramListTest, AParameterThatTheTrainingProgramLacksIsFrozen) {
  TinyRun with(must(Engine::plan(with_deeper(), {}))), without(must(Engine::plan(tiny_programs(), {})));
  EXPECT_EQ(with.plan->n_params(true), without.plan->n_params(true));
  EXPECT_GT(with.plan->n_params(false), 0);
  for (TinyRun* run : {&with, &without}) must(run->engine->initialize(1));
  const test::StateTensors before = test::states_of(*with.engine, Payload::param);
  EXPECT_EQ(with.train(3), without.train(3));
  const test::StateTensors trained = test::states_of(*without.engine, Payload::param);
  for (const auto& [name, values] : test::states_of(*with.engine, Payload::param)) {
    const auto found = trained.find(name);
    EXPECT_EQ(values, found != trained.end() ? found->second : before.find(name)->second) << name;
  }
}

TEST(ProgramListTest, EqualNamesAreRefused) {
  ProgramSet named = with_deeper();
  named.add(deeper());
  EXPECT_THAT(std::string(Engine::plan(named, {}).status().message()),
              HasSubstr("two programs of the run are named deeper"));
  EXPECT_EQ(Engine::plan(ProgramSet(), {}).status().code(), Code::invalid);
}

// Everything that the engine fills or reads in a program of a role, one after the other under another name.
TEST(ProgramListTest, AProgramWithoutAnInputOrOutputOfItsRoleIsRefusedByName) {
  const DecoderConfig config = test::tiny_config();
  ProgramSet all = test::unfused_programs(Recompute::none, 3, config, DType::f32);
  all[ProgramRole::train] = interleave_micro_batches(all[ProgramRole::train], 2);
  all[ProgramRole::prefill] = must(record_cached_decoder(config, {4, 1, config.seq, 1}));
  all[ProgramRole::decode] = must(record_cached_decoder(config, {1, 1, config.seq, 1}));
  const SessionOptions options{.grad_accum = 2};
  must(Engine::plan(all, options));
  struct Port {
    ProgramRole role;
    std::vector<std::string> names;
  };
  const std::vector<std::string> of_sequences = {"tokens", "positions", "slots", "logit_indices", "logits"};
  for (const Port& port : std::vector<Port>{{ProgramRole::train, {"loss", "loss#1"}},
                                            {ProgramRole::eval, {"loss"}},
                                            {ProgramRole::infer, {"tokens", "logits"}},
                                            {ProgramRole::prefill, of_sequences},
                                            {ProgramRole::decode, of_sequences}})
    for (const std::string& name : port.names) {
      ProgramSet set = all;
      Program& program = set[port.role];
      program.values[static_cast<std::size_t>(program.find(name))].name = "other";
      const Status refused = Engine::plan(set, options).status();
      EXPECT_EQ(refused.code(), Code::invalid) << name;
      EXPECT_THAT(std::string(refused.message()),
                  ::testing::MatchesRegex(str("program ", to_string(port.role), " has no (in|out)put named ",
                                              name, ", .* role ", to_string(port.role), " needs")));
    }
}

TEST(ProgramListTest, ResultsThatAreNotF32AreRefused) {
  ProgramSet set = tiny_programs();
  Program& infer = set[ProgramRole::infer];
  infer.values[static_cast<std::size_t>(infer.find("logits"))].dtype = DType::bf16;
  EXPECT_THAT(std::string(Engine::plan(set, {}).status().message()),
              HasSubstr("output logits of program infer with the role infer is bf16 [16, 50]"));
}

TEST(SharedBudgetsTest, TwoEnginesStayWithinOneSetOfBudgets) {
  SessionOptions options;
  options.policy = PlacementPolicy::pinned;
  const auto plan = must(Engine::plan(tiny_programs(), options));
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto backend = must(create_host_backend({}, *pool, clock));
  TierBytes both{};
  for (std::size_t t = 0; t < kTiers; ++t) both[t] = 2 * plan->planned_peak[t];
  TierBudgets budgets(both);
  const Engine::Environment environment{
      .backend = *backend, .pool = *pool, .clock = clock, .io = posix_io(), .budgets = &budgets};
  const auto first = must(Engine::create(*plan, environment)),
             second = must(Engine::create(*plan, environment));
  EXPECT_EQ(budgets.used(), both);
  EXPECT_EQ(Engine::create(*plan, environment).status().code(), Code::does_not_fit);
  test::CountingBatches batches(test::tiny_config().vocab);
  for (Engine* engine : {first.get(), second.get()}) {
    must(engine->initialize(1));
    StepReport report;
    must(engine->train_step(batches, 1e-2, report));
  }
  EXPECT_EQ(must(first->state_digest()), must(second->state_digest()));
}

TEST(DatalessTest, ABackendWithoutDataNeedsItAndOneWithDataRefusesIt) {
  const auto plan = must(Engine::plan(tiny_programs(), {}));
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(1));
  const auto null = must(create_null_backend()), host = must(create_host_backend({}, *pool, clock));
  const Engine::Dataless dataless{};
  EXPECT_EQ(Engine::create(*plan, {*null, *pool, clock, posix_io()}).status().code(), Code::invalid);
  EXPECT_EQ(
      Engine::create(
          *plan, {.backend = *host, .pool = *pool, .clock = clock, .io = posix_io(), .dataless = &dataless})
          .status()
          .code(),
      Code::invalid);
}

}  // namespace
}  // namespace strata
