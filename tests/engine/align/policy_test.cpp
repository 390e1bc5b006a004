// Policies and critics of every family: what is scored is what is trained, to the bit.
#include <cmath>

#include <gtest/gtest.h>

#include <strata/model/align/policy.h>

#include "engine/tiny_run.h"

namespace strata {
namespace {

using test::TinyRun;

constexpr std::int64_t kRows = 3, kSeq = 16, kTokens = kRows * kSeq;

/// Packed rows with answers, what a forward pass said of them, and advantages.
class Answers final : public BatchSource {
 public:
  Status fill(std::int64_t index, const BatchView& batch) override {
    const Rng rng(3, static_cast<std::uint64_t>(index));
    const auto tokens = batch["tokens"], targets = batch["targets"], doc_start = batch["doc_start"];
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::size_t in_row = t % kSeq, start = in_row < 9 ? 0 : 9;
      tokens[t] = static_cast<std::int32_t>(rng.below(t, 50));
      doc_start[t] = static_cast<std::int32_t>(start);
      const bool answers = in_row - start >= 3 && in_row != 8 && in_row != 15;
      if (!targets.empty()) targets[t] = answers ? static_cast<std::int32_t>(rng.below(100 + t, 50)) : -1;
      set(batch, "weights", t, answers ? 0.25f + static_cast<float>(t % 3) : 0);
      set(batch, "advantages", t, static_cast<float>(rng.normal(200 + t)));
      set(batch, "returns", t, static_cast<float>(rng.normal(300 + t)));
      set(batch, "old_log_probs", t, old.empty() ? 0 : old[t]);
      set(batch, "reference", t, reference.empty() ? 0 : reference[t]);
      set(batch, "old_values", t, values.empty() ? 0 : values[t]);
    }
    return {};
  }
  std::int64_t n_counted(std::int64_t, std::int64_t n) override { return 24 * n; }

  std::vector<float> old, reference, values;

 private:
  static void set(const BatchView& batch, const char* name, std::size_t t, float value) {
    if (const std::span<float> into = batch.floats(name); !into.empty()) into[t] = value;
  }
};

NamedProgram trains(const char* name, const char* trainee, Program forward) {
  NamedProgram named{name, ProgramRole::train, must(derive_backward(std::move(forward), "loss"))};
  named.program = recompute_regions(std::move(named.program), Recompute::full);
  named.trainee = trainee;
  return named;
}

/// An actor, the model that it begins as, and a critic.
ProgramSet programs_of(const DecoderConfig& config, DType compute) {
  const PolicyProgram policy{.batch = kRows, .temperature = 0.7f};
  const kernels::PolicyLossOptions options{.kl_coef = 0.1f};
  ProgramSet set;
  set.add(trains("policy", "actor", must(record_policy_loss(config, policy, options, compute))));
  set.add(
      trains("values", "critic",
             prefix_parameters(must(record_value_loss(config, kRows, {.clip = 0.2f}, compute)), "critic.")));
  set.add({"log_probs", ProgramRole::forward, must(record_log_probs(config, policy, true, compute))});
  set.add({"reference", ProgramRole::forward,
           freeze_trainable(
               copy_trainable(must(record_log_probs(config, policy, false, compute)), "reference."))});
  set.add({"scores", ProgramRole::forward,
           prefix_parameters(must(record_token_scores(config, kRows, compute)), "critic.")});
  return set;
}

std::vector<float> output(TinyRun& run, Answers& answers, const char* program, const char* name) {
  must(run.engine->forward(program, answers, 0));
  const std::span<const float> found = run.engine->output(program, name);
  return {found.begin(), found.end()};
}

struct PolicyCase {
  std::string_view family;
  DType compute;
};

class PolicyTest : public ::testing::TestWithParam<PolicyCase> {};

TEST_P(PolicyTest, TheFirstRatioIsOneAndTheReferenceIsNoneAway) {
  const DecoderConfig config = test::tiny_of_family(GetParam().family);
  TinyRun run(must(Engine::plan(programs_of(config, GetParam().compute), {})));
  must(run.engine->initialize(1));
  Answers answers;
  answers.old = output(run, answers, "log_probs", "log_probs");
  for (const float entropy : output(run, answers, "log_probs", "entropies"))
    EXPECT_TRUE(entropy >= 0 && entropy < std::log(50.0f) + 1e-3f) << entropy;
  answers.reference = output(run, answers, "reference", "log_probs");
  EXPECT_EQ(answers.old, answers.reference);
  answers.values = output(run, answers, "scores", "scores");
  BatchSource* const source = &answers;
  StepReport report;
  must(run.engine->train_step("actor", {&source, 1}, 1e-3, report));
  const std::span<const float> policy = run.engine->output("policy", "stats");
  ASSERT_EQ(policy.size(), 6u);
  EXPECT_GT(policy[0], 0);          // weights
  EXPECT_EQ(policy[1], 0);          // clipped
  EXPECT_EQ(policy[2], 0);          // KL of the old policy
  EXPECT_EQ(policy[3], 0);          // KL of the reference
  EXPECT_EQ(policy[4], policy[0]);  // ratios, all of which are 1
  EXPECT_EQ(policy[5], 1.0f);       // the largest of them
  EXPECT_GT(report.grad_norm, 0);
  must(run.engine->train_step("critic", {&source, 1}, 1e-3, report));
  EXPECT_EQ(run.engine->output("values", "stats")[1], 0);  // no value is clipped
  EXPECT_GT(report.grad_norm, 0);
  // After a step the ratio is another one, and the reference is where it was.
  must(run.engine->train_step("actor", {&source, 1}, 1e-3, report));
  EXPECT_NE(run.engine->output("policy", "stats")[5], 1.0f);
  EXPECT_EQ(output(run, answers, "reference", "log_probs"), answers.reference);
}

// The old policy is the one that is trained: nothing has to be scored, and nothing else changes.
TEST_P(PolicyTest, AnOnPolicyStepIsTheOneWithScoredLogProbabilities) {
  const DecoderConfig config = test::tiny_of_family(GetParam().family);
  const kernels::PolicyLossOptions options{.kl_coef = 0.1f};
  std::vector<float> losses, norms;
  std::vector<std::vector<float>> log_probs, entropies, after;
  for (const bool on_policy : {false, true}) {
    const PolicyProgram policy{.batch = kRows, .temperature = 0.7f, .on_policy = on_policy};
    ProgramSet set;
    set.add(trains("policy", "actor", must(record_policy_loss(config, policy, options, GetParam().compute))));
    set.add({"log_probs", ProgramRole::forward,
             must(record_log_probs(config, policy, true, GetParam().compute))});
    TinyRun run(must(Engine::plan(std::move(set), {})));
    must(run.engine->initialize(1));
    Answers answers;
    answers.reference.assign(kTokens, -3.5f);
    if (!on_policy) {
      log_probs.push_back(output(run, answers, "log_probs", "log_probs"));
      entropies.push_back(output(run, answers, "log_probs", "entropies"));
      answers.old = log_probs.front();
    }
    BatchSource* const source = &answers;
    StepReport report;
    must(run.engine->train_step("actor", {&source, 1}, 1e-3, report));
    losses.push_back(report.loss);
    norms.push_back(static_cast<float>(report.grad_norm));
    if (on_policy) {
      const auto made = run.engine->output("policy", "log_probs"),
                 entropy = run.engine->output("policy", "entropies");
      log_probs.emplace_back(made.begin(), made.end());
      entropies.emplace_back(entropy.begin(), entropy.end());
      EXPECT_EQ(run.engine->output("policy", "stats")[5], 1.0f);  // the largest ratio
    }
    after.push_back(output(run, answers, "log_probs", "log_probs"));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_GT(norms[0], 0);
  EXPECT_EQ(log_probs[0], log_probs[1]);
  EXPECT_EQ(entropies[0], entropies[1]);
  EXPECT_EQ(after[0], after[1]);
  EXPECT_NE(after[0], log_probs[0]);
}

std::vector<PolicyCase> families_and_dtypes() {
  std::vector<PolicyCase> all;
  for (const std::string_view family : decoder_families())
    for (const DType compute : {DType::f32, DType::bf16, DType::f16}) all.push_back({family, compute});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Families, PolicyTest, ::testing::ValuesIn(families_and_dtypes()),
                         [](const auto& test) {
                           return std::string(test.param.family) + "_" +
                                  std::string(to_string(test.param.compute));
                         });

}  // namespace
}  // namespace strata
