// Several trainees in one run: each is updated as if it were alone, wherever states are and whatever is
// pending.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/op_list.h>
#include <strata/graph/passes.h>
#include <strata/session/checkpoint.h>

#include "engine/random_homes.h"
#include "engine/states.h"
#include "engine/tiny_run.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::CountingBatches;
using test::TinyRun;
using ::testing::HasSubstr;

DecoderConfig critic_config() {
  DecoderConfig config = test::tiny_config();
  config.layers = 1;
  return config;
}

NamedProgram trains(const std::string& name, const std::string& trainee, const DecoderConfig& config,
                    const std::string& prefix) {
  Program program = must(record_decoder(config, 3, DecoderHead::loss));
  program = prefix_parameters(std::move(program), prefix);
  NamedProgram named{name, ProgramRole::train, must(derive_backward(std::move(program), "loss"))};
  named.trainee = trainee;
  return named;
}
NamedProgram actor() { return trains("policy", "actor", test::tiny_config(), ""); }
NamedProgram critic() { return trains("values", "critic", critic_config(), "critic."); }

ProgramSet both() {
  ProgramSet set;
  set.add(actor());
  set.add(critic());
  return set;
}

SessionOptions trainee_options(StepMode mode = StepMode::two_phase) {
  SessionOptions options;
  options.step_mode = mode;
  options.grad_accum = 2;
  options.chunk_elems = 4096;
  options.trainees = {{.name = "critic", .clip = 0.05}};
  return options;
}

SessionOptions options_of_one() {
  SessionOptions options = trainee_options();
  options.trainees.clear();
  return options;
}

/// The results of a trainee's steps, and what it has learned.
struct Learned {
  std::vector<float> losses;
  std::vector<double> norms;
  test::StateTensors params;
  friend bool operator==(const Learned&, const Learned&) = default;
};

test::StateTensors of_prefix(const test::StateTensors& all, bool critics) {
  test::StateTensors own;
  for (const auto& [name, values] : all)
    if (name.starts_with("critic.") == critics) own[name] = values;
  return own;
}

void step(Engine& engine, std::string_view trainee, double lr, Learned& learned) {
  CountingBatches batches(test::tiny_config().vocab);
  BatchSource* const source = &batches;
  StepReport report;
  must(engine.train_step(trainee, {&source, 1}, lr, report));
  learned.losses.push_back(report.loss);
  learned.norms.push_back(report.grad_norm);
}

constexpr double kActorLr = 1e-2, kCriticLr = 3e-2;

/// Steps of the actor, and every second time one of the critic: updates of both are pending at once.
std::pair<Learned, Learned> train_both(Engine& engine, int steps, int from = 0) {
  Learned actor, critic;
  for (int i = from; i < steps; ++i) {
    step(engine, "actor", kActorLr, actor);
    if (i % 2 == 0) step(engine, "critic", kCriticLr, critic);
  }
  const test::StateTensors params = test::states_of(engine, Payload::param);
  actor.params = of_prefix(params, false);
  critic.params = of_prefix(params, true);
  return {actor, critic};
}

Learned train_alone(NamedProgram program, double clip, const test::StateTensors& start, double lr,
                    int steps) {
  const std::string trainee = program.trainee;
  ProgramSet set;
  set.add(std::move(program));
  SessionOptions options = options_of_one();
  options.clip = clip;
  TinyRun run(must(Engine::plan(set, options)));
  must(run.engine->initialize(1));
  must(run.engine->fill(Payload::param, test::fill_from(start)));
  Learned learned;
  for (int i = 0; i < steps; ++i) step(*run.engine, trainee, lr, learned);
  learned.params = test::states_of(*run.engine, Payload::param);
  return learned;
}

TEST(TraineesTest, EachLearnsWhatItLearnsAlone) {
  TinyRun run(must(Engine::plan(both(), trainee_options())));
  must(run.engine->initialize(1));
  const test::StateTensors start = test::states_of(*run.engine, Payload::param);
  const auto [actor_of_both, critic_of_both] = train_both(*run.engine, 5);
  EXPECT_EQ(run.engine->steps(), 5);
  EXPECT_EQ(run.engine->steps(1), 3);
  EXPECT_EQ(actor_of_both,
            train_alone(actor(), trainee_options().clip, of_prefix(start, false), kActorLr, 5));
  const Learned critic_alone = train_alone(critic(), 0.05, of_prefix(start, true), kCriticLr, 3);
  EXPECT_EQ(critic_of_both, critic_alone);
  EXPECT_GT(critic_alone.norms.front(), 0.05);  // its own clip factor matters
}

TEST(TraineesTest, PlacementsAndStepModesGiveTheSameBits) {
  TinyRun in_hbm(must(Engine::plan(both(), trainee_options(StepMode::serial))));
  must(in_hbm.engine->initialize(1));
  const auto expected = train_both(*in_hbm.engine, 6);
  const test::TempDir dir;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    SessionOptions options = test::swapping_options(dir.path(), static_cast<StepMode>(seed % 5));
    options.chunk_elems = seed % 2 == 0 ? 4096 : 8192;
    options.trainees = trainee_options().trainees;
    options.undo_bytes = kUnlimited;
    TinyRun run(must(Engine::plan_with(both(), options, [&](const ChunkLayout& layout, Placement& placement) {
      test::random_homes(seed, layout, placement);
    })));
    must(run.engine->initialize(1));
    EXPECT_EQ(train_both(*run.engine, 6), expected) << seed;
    EXPECT_EQ(run.engine->peak_bytes(), run.plan->planned_peak) << seed;
  }
}

TEST(TraineesTest, ACheckpointHasTheStepsOfEach) {
  const test::TempDir dir;
  TinyRun through(must(Engine::plan(both(), trainee_options())));
  must(through.engine->initialize(1));
  const auto expected = train_both(*through.engine, 7);
  TinyRun first(must(Engine::plan(both(), trainee_options())));
  must(first.engine->initialize(1));
  (void)train_both(*first.engine, 4);
  const std::string folder = must(save_checkpoint(*first.engine, posix_io(), dir.path(), {}, 1));
  EXPECT_EQ(must(read_manifest(posix_io(), folder)).trainees.at("critic").step, 2);
  TinyRun second(must(Engine::plan(both(), trainee_options(StepMode::serial))));
  must(load_checkpoint(*second.engine, posix_io(), folder));
  EXPECT_EQ(second.engine->steps(1), 2);
  EXPECT_EQ(train_both(*second.engine, 7, 4).first.params, expected.first.params);
  EXPECT_EQ(of_prefix(test::states_of(*second.engine, Payload::param), true), expected.second.params);
  ProgramSet only;
  only.add(actor());
  TinyRun other(must(Engine::plan(only, {})));
  const Status refused = load_checkpoint(*other.engine, posix_io(), folder).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("it has the steps of 2 trainees (actor, critic)"));
}

TEST(TraineesTest, AFailedStepOfOneLeavesThePendingUpdateOfTheOther) {
  TinyRun run(must(Engine::plan(both(), trainee_options()))),
      clean(must(Engine::plan(both(), trainee_options())));
  for (TinyRun* each : {&run, &clean}) {
    must(each->engine->initialize(1));
    Learned ignored;
    step(*each->engine, "actor", kActorLr, ignored);
  }
  class Failing final : public BatchSource {
   public:
    Status fill(std::int64_t, const BatchView&) override {
      return Status::error(Code::io_error, "no more data");
    }
    std::int64_t n_counted(std::int64_t, std::int64_t) override { return 1; }
  } failing;
  BatchSource* const source = &failing;
  StepReport report;
  EXPECT_EQ(run.engine->train_step("critic", {&source, 1}, kCriticLr, report).code(), Code::io_error);
  EXPECT_EQ(run.engine->steps(1), 0);
  EXPECT_EQ(test::states_of(*run.engine, Payload::param), test::states_of(*clean.engine, Payload::param));
  EXPECT_EQ(train_both(*run.engine, 4), train_both(*clean.engine, 4));
}

/// The micro-batches of another source from `first` on.
class Later final : public BatchSource {
 public:
  Later(std::int64_t first, std::int64_t stride) : first_(first), stride_(stride) {}
  Status fill(std::int64_t index, const BatchView& batch) override { return batches_.fill(of(index), batch); }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override { return batches_.n_counted(index, n); }

 private:
  // Maps to the first or the last two of each step's four micro-batches.
  std::int64_t of(std::int64_t index) const { return index / 2 * stride_ + first_ + index % 2; }
  const std::int64_t first_, stride_;
  CountingBatches batches_{test::tiny_config().vocab};
};

// Two programs with half of the loss each are one program over all micro-batches.
TEST(TraineesTest, ProgramsOfATraineeAddUpToOneGradient) {
  SessionOptions options = options_of_one();
  options.grad_accum = 4;
  ProgramSet one;
  one.add(actor());
  TinyRun expected(must(Engine::plan(one, options)));
  ProgramSet mixed;
  NamedProgram first = actor(), second = actor();
  second.name = "pretrain";
  first.micro_batches = second.micro_batches = 2;
  first.weight = second.weight = 0.5;
  mixed.add(std::move(first));
  mixed.add(std::move(second));
  TinyRun run(must(Engine::plan(mixed, options)));
  must(expected.engine->initialize(1));
  must(run.engine->initialize(1));
  Later front(0, 4), back(2, 4);
  BatchSource* const sources[] = {&front, &back};
  Learned want, got;
  for (int i = 0; i < 3; ++i) {
    step(*expected.engine, "actor", kActorLr, want);
    StepReport report;
    must(run.engine->train_step("actor", sources, kActorLr, report));
    got.losses.push_back(report.loss);
    got.norms.push_back(report.grad_norm);
  }
  want.params = test::states_of(*expected.engine, Payload::param);
  got.params = test::states_of(*run.engine, Payload::param);
  EXPECT_EQ(got, want);
  const Status status =
      run.engine->train_step("actor", {sources, 1}, kActorLr, *std::make_unique<StepReport>());
  EXPECT_THAT(std::string(status.message()), HasSubstr("needs 2 batch sources"));
}

std::string refusal(NamedProgram a, NamedProgram b, const SessionOptions& options = {}) {
  ProgramSet set;
  set.add(std::move(a));
  set.add(std::move(b));
  return std::string(Engine::plan(set, options).status().message());
}

TEST(TraineesTest, TraineesThatShareParametersAreRefused) {
  NamedProgram other = actor();
  other.name = "again";
  other.trainee = "critic";
  EXPECT_THAT(refusal(actor(), std::move(other)),
              HasSubstr("is trained by policy and by again, which are programs of different trainees"));
  NamedProgram of_actor = critic();
  of_actor.trainee = "actor";
  EXPECT_THAT(refusal(actor(), std::move(of_actor)), HasSubstr("they must train the same ones"));
  EXPECT_THAT(refusal(actor(), critic(), {.trainees = {{.name = "judge"}}}),
              HasSubstr("options of trainee 'judge'"));
  SessionOptions ranks;
  ranks.grad_accum = 2;
  ranks.ranks.ranks = 2;
  EXPECT_THAT(refusal(actor(), critic(), ranks),
              HasSubstr("a run with 2 programs that train needs one rank"));
}

// --- programs whose outputs the caller gets ---

TEST(TraineesTest, OutputsOfForwardProgramsAreRead) {
  ProgramSet set;
  set.add(actor());
  Program eval = must(record_decoder(test::tiny_config(), 3, DecoderHead::loss));
  const auto head = std::find_if(eval.code.begin(), eval.code.end(),
                                 [](const Instr& instr) { return instr.op == Op::linear_cross_entropy; });
  ASSERT_NE(head, eval.code.end());
  eval.outputs = {head->out[1]};
  eval.values[static_cast<std::size_t>(head->out[1])].name = "losses";
  set.add({"token_losses", ProgramRole::forward, std::move(eval)});
  set.add({"eval", ProgramRole::eval, must(record_decoder(test::tiny_config(), 3, DecoderHead::loss))});
  TinyRun run(must(Engine::plan(set, options_of_one())));
  must(run.engine->initialize(1));
  Learned ignored;
  step(*run.engine, "actor", kActorLr, ignored);  // its update is pending
  CountingBatches batches(test::tiny_config().vocab);
  must(run.engine->forward("token_losses", batches, 5));
  const std::span<const float> found = run.engine->output("token_losses", "losses");
  ASSERT_EQ(found.size(), CountingBatches::kTokens);
  double sum = 0;
  for (const float loss : found) sum += static_cast<double>(loss);
  Later fifth(5, 0);
  EXPECT_NEAR(sum / static_cast<double>(found.size()), must(run.engine->evaluate(fifth, 1)), 1e-6);
  EXPECT_TRUE(run.engine->output("token_losses", "logits").empty());
  EXPECT_EQ(run.engine->forward("eval", batches, 0).code(), Code::unsupported);
}

// The cache is where training has its activations.
TEST(TraineesTest, TrainingTakesTheMemoryOfTheCache) {
  const DecoderConfig config = test::tiny_config();
  const auto with_cache = [&](ProgramSet set) {
    set[ProgramRole::prefill] = must(record_cached_decoder(config, {8, 2, config.seq, 2}));
    set[ProgramRole::decode] = must(record_cached_decoder(config, {2, 2, config.seq, 2}));
    return set;
  };
  ProgramSet only_train;
  only_train.add(actor());
  const auto train = must(Engine::plan(only_train, options_of_one()));
  const auto cached = must(Engine::plan(with_cache({}), options_of_one()));
  TinyRun run(must(Engine::plan(with_cache(only_train), options_of_one())));
  EXPECT_EQ(run.plan->trace.device_fixed_bytes,
            std::max(train->trace.device_fixed_bytes, cached->trace.device_fixed_bytes));
  EXPECT_LT(run.plan->trace.device_fixed_bytes,
            train->trace.device_fixed_bytes + cached->trace.device_fixed_bytes);
  must(run.engine->initialize(1));
  const std::vector<SequenceToken> prompt = {{3, 0, 0}, {4, 1, 0}};
  const std::vector<SequenceToken> next = {{5, 2, 0}}, after = {{6, 3, 0}};
  const std::vector<std::int32_t> last = {1}, only = {0};
  must(run.engine->extend(prompt, last).status());
  must(run.engine->extend(next, only).status());
  Learned ignored;
  step(*run.engine, "actor", kActorLr, ignored);
  EXPECT_THAT(std::string(run.engine->extend(after, only).status().message()),
              HasSubstr("does not continue"));
  must(run.engine->extend(prompt, last).status());
}

}  // namespace
}  // namespace strata
