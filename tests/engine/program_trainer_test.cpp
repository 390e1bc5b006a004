#include "engine/program_trainer.h"

#include <gtest/gtest.h>

#include <strata/offload/nvme_store.h>
#include <strata/runtime/str.h>

#include "engine/states.h"
#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::ProgramTrainer;
using test::TinyRun;

struct TrainerCase {
  const char* family = "gpt2";
  DType compute = DType::f32;
  std::int32_t grad_accum = 1;
  TrainerHolds holds = TrainerHolds::states;
  bool on_nvme = false;
  const char* optimizer = "adamw";
  StateFormat states = StateFormat::fp32;
  std::vector<std::string> freeze = {};
};

std::string name_of(const ::testing::TestParamInfo<TrainerCase>& info) {
  const TrainerCase& c = info.param;
  return str(c.family, "_", to_string(c.compute), "_", c.grad_accum, "_",
             c.holds == TrainerHolds::params ? "params" : "states", c.on_nvme ? "_nvme" : "", "_",
             c.optimizer, c.states == StateFormat::fp32 ? "" : "_moments_in_",
             c.states == StateFormat::fp32 ? std::string_view() : to_string(c.states),
             c.freeze.empty() ? "" : "_frozen");
}

struct Outcome {
  std::vector<float> losses;
  std::vector<double> norms;
  std::string digest;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

constexpr int kSteps = 4;

class ProgramTrainerTest : public ::testing::TestWithParam<TrainerCase> {
 protected:
  SessionOptions options() const {
    SessionOptions options;
    options.grad_accum = GetParam().grad_accum;
    options.optimizer.optimizer = must(cpuopt::optimizer_named(GetParam().optimizer));
    options.optimizer.momentum = 0.9;
    options.optimizer.weight_decay = 0.1;
    options.states = GetParam().states;
    options.rounding_seed = 11;
    options.clip = 0.7;  // binding
    options.chunk_elems = 8192;
    return options;
  }
  static double lr(int step) { return 1e-2 / (1 + step); }

  // The engine's outcome; `first` receives the initial parameters.
  Outcome of_engine(const ProgramSet& programs, test::StateTensors& first) const {
    TinyRun run(must(Engine::plan(programs, options())));
    must(run.engine->initialize(5));
    first = test::states_of(*run.engine, Payload::param);
    test::CountingBatches batches(test::tiny_config().vocab);
    Outcome outcome;
    for (int i = 0; i < kSteps; ++i) {
      StepReport report;
      must(run.engine->train_step(batches, lr(i), report));
      outcome.losses.push_back(report.loss);
      outcome.norms.push_back(report.grad_norm);
    }
    outcome.digest = must(run.engine->state_digest());
    return outcome;
  }
};

TEST_P(ProgramTrainerTest, StepsHaveTheBitsOfTheEngine) {
  const ProgramSet programs = test::tiny_programs(Recompute::none, 3, test::tiny_of_family(GetParam().family),
                                                  GetParam().compute, GetParam().freeze);
  test::StateTensors first;
  const Outcome expected = of_engine(programs, first);

  const test::TempDir dir;
  SteadyClock clock;
  const auto pool = must(ThreadPool::create(2));
  const auto backend =
      must(create_host_backend({.schedule = StreamSchedule::latest_legal, .check = true}, *pool, clock));
  SessionOptions of_session = options();
  if (GetParam().on_nvme) {
    of_session.nvme.dirs = {dir.path()};
    of_session.nvme.engine = IoEngine::threads;
    of_session.policy = PlacementPolicy::nvme;
  }
  const SessionOptions of_trainer = options();
  ProgramTrainer trainer(programs[ProgramRole::train], of_trainer, GetParam().holds, *backend, *pool);
  const auto plan = must(plan_trainer_states(trainer.params(), of_session, GetParam().holds));
  SessionEnvironment environment{*backend, *pool, clock};
  environment.open_store = [](const NvmeOptions& nvme) -> Result<StorePtr<ObjectStore>> {
    if (nvme.classes.empty()) return StorePtr<ObjectStore>();
    return StorePtr<ObjectStore>(must(NvmeStore::create(posix_io(), nvme)));
  };
  const auto session = must(TrainerSession::create(*plan, environment, trainer.addresses()));
  must(session->fill(Payload::param, test::fill_from(first)));

  test::CountingBatches batches(test::tiny_config().vocab);
  Outcome outcome;
  for (int i = 0; i < kSteps; ++i) {
    const ProgramTrainer::Step step = trainer.step(*session, batches, lr(i));
    outcome.losses.push_back(step.loss);
    outcome.norms.push_back(step.grad_norm);
  }
  if (GetParam().holds == TrainerHolds::states) must(session->bind(trainer.addresses()));
  outcome.digest = must(session->state_digest());
  EXPECT_EQ(outcome.losses, expected.losses);
  EXPECT_EQ(outcome.norms, expected.norms);
  EXPECT_EQ(outcome.digest, expected.digest);
  EXPECT_EQ(session->peak_bytes().back() > 0, GetParam().on_nvme);
}

constexpr auto kParams = TrainerHolds::params;

std::vector<TrainerCase> cases() {
  std::vector<TrainerCase> all;
  for (const std::string_view family : decoder_families())  // its names end with a zero
    for (const DType compute : {DType::f32, DType::bf16})
      all.push_back({.family = family.data(), .compute = compute, .holds = kParams});
  for (const DType compute : {DType::f32, DType::bf16})
    for (const std::int32_t grad_accum : {1, 3})
      for (const bool on_nvme : {false, true}) {
        all.push_back({.compute = compute, .grad_accum = grad_accum, .on_nvme = on_nvme});
        if (grad_accum > 1 || on_nvme)
          all.push_back({.compute = compute, .grad_accum = grad_accum, .holds = kParams, .on_nvme = on_nvme});
      }
  all.push_back({.holds = kParams, .freeze = {"layers.0.*"}});
  all.push_back({.optimizer = "lamb"});
  all.push_back({.holds = kParams, .optimizer = "lamb"});
  all.push_back({.optimizer = "lion", .states = StateFormat::int8});
  all.push_back({.holds = kParams, .on_nvme = true, .states = StateFormat::bf16});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Trainer, ProgramTrainerTest, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace strata
