// Runs whose ranks are the stages of a pipeline.
#include <filesystem>
#include <fstream>
#include <functional>

#include "cli/e2e/e2e_shared_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Its head is not its embedding.
const Words kUntied = {"model.family=llama", "model.layers=4", "train.grad_accum=8", "train.micro_batch=1"};

class CliPipelineE2e : public CliSharedE2e {
 protected:
  void train_untied(const std::string& name, const Words& words = {}) const {
    train(name, joined(kUntied, words));
  }
  /// The hash of the bytes of the run's parameters.
  std::size_t params_hash(const std::string& name) const {
    std::filesystem::remove_all(file(name + "-hf"));
    const ProgramResult result = strata({"export", name, "--out", name + "-hf"});
    EXPECT_EQ(result.exit_code, 0) << result.output();
    return std::hash<std::string>()(read_all(file(name + "-hf/model.safetensors")));
  }
};

TEST_F(CliPipelineE2e, EveryScheduleHasTheBitsOfOneRank) {
  train_untied("one");
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"})
    for (const Words& ranks : {Words{"parallel.pp=2"}, Words{"parallel.pp=2", "parallel.ranks=4"}}) {
      const std::string name = str(schedule, ranks.size());
      train_untied(name, joined(ranks, {str("parallel.schedule=", schedule)}));
      EXPECT_EQ(loss_bits(name), loss_bits("one")) << name;
      EXPECT_EQ(params_hash(name), params_hash("one")) << name;
    }
}

TEST_F(CliPipelineE2e, AScheduleComesFromAFile) {
  train_untied("one");
  std::ofstream(file("mine.txt")) << "# 1F1B, written by hand\n"
                                     "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7\n"
                                     "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7\n";
  train_untied("mine", {"parallel.pp=2", "parallel.schedule=mine.txt"});
  EXPECT_EQ(loss_bits("mine"), loss_bits("one"));
  const ProgramResult other =
      strata(run_of("other", joined(joined(kSmall, kUntied),
                                    {"parallel.pp=2", "parallel.schedule=mine.txt", "train.grad_accum=4"})));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("mine.txt is a schedule of 2 ranks and 8 micro-batches"),
                               HasSubstr("a step of a copy of the model has 4 micro-batches")));
}

TEST_F(CliPipelineE2e, MixturesOverThreeTiersTrainToTheLossesOfOneRank) {
  const Words tight = {"memory.device=1800KiB", "memory.pinned=1200KiB", "memory.nvme=64MiB"};
  train_untied("one");
  const std::vector<Words> mixtures = {
      {"parallel.pp=2", "parallel.tp=2", "parallel.shard=megatron+sp,vocab", "train.recompute=full"},
      {"parallel.pp=2", "parallel.cp=2", "parallel.shard=ring", "parallel.schedule=zb-h1"},
      {"parallel.pp=2", "parallel.tp=2", "parallel.ranks=8", "parallel.zero=3", "parallel.schedule=gpipe"},
      {"parallel.pp=4", "parallel.ranks=8", "parallel.zero=2", "offload.activations=pinned"},
      {"parallel.pp=2", "parallel.ranks=4", "parallel.reduce=once", "parallel.zero=1"},
      {"parallel.pp=2", "train.dtype=bf16", "offload.step_mode=speculative"}};
  for (std::size_t i = 0; i < mixtures.size(); ++i) {
    SCOPED_TRACE(::testing::PrintToString(mixtures[i]));
    train_untied(str(i), joined(tight, mixtures[i]));
    expect_near(str(i), "one", i == 5 ? 2e-2 : 1e-4);
  }
}

TEST_F(CliPipelineE2e, AnyMeshResumesARunAndOtherCommandsReadIt) {
  train_untied("whole", {"train.steps=2"});
  train_untied("run", {"train.steps=2", "parallel.pp=4", "parallel.ranks=8"});
  const auto loss = [&](const Words& layout) {
    const ProgramResult result = strata(joined({"eval", "run", "--json"}, layout));
    EXPECT_EQ(result.exit_code, 0) << result.output();
    return nlohmann::json::parse(result.out)["loss"].get<double>();
  };
  EXPECT_EQ(loss({"parallel.pp=2", "parallel.ranks=2"}), loss({"parallel.pp=1", "parallel.ranks=1"}));
  const ProgramResult refused = strata({"generate", "run", "parallel.pp=2", "parallel.ranks=2"});
  EXPECT_EQ(refused.exit_code, 2) << refused.output();
  EXPECT_THAT(refused.err, HasSubstr("along tp alone"));
  must_train({"train", "--resume", "run", "train.steps=4", "parallel.pp=3", "parallel.ranks=6"});
  must_train({"train", "--resume", "run", "train.steps=6", "parallel.pp=3", "parallel.ranks=3"});
  must_train({"train", "--resume", "run", "train.steps=8", "parallel.pp=1", "parallel.ranks=1"});
  for (const char* steps : {"train.steps=4", "train.steps=6", "train.steps=8"})
    must_train({"train", "--resume", "whole", steps});
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
  EXPECT_EQ(params_hash("run"), params_hash("whole"));
}

TEST_F(CliPipelineE2e, ThePlanSaysHowAPipelineRuns) {
  const ProgramResult plan = strata(tiny("plan", joined(joined(kSmall, kUntied), {"parallel.pp=2"})));
  EXPECT_EQ(plan.exit_code, 0) << plan.output();
  EXPECT_THAT(plan.out,
              AllOf(HasSubstr("pipeline stage 0 of 2 with "),
                    HasSubstr("schedule 1f1b: 8 micro-batches, activations of at most 2 at a time; 11.1 % of "
                              "the step idle"),
                    HasSubstr(" of other stages"), HasSubstr("x message along pp (")));
}

TEST_F(CliPipelineE2e, AllProblemsOfAPipelineAreReportedAtOnce) {
  const ProgramResult result =
      strata(run_of("run", joined(joined(kSmall, kUntied), {"parallel.pp=8", "parallel.schedule=2f2b",
                                                            "offload.micro_batch_order=breadth_first"})));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("parallel.schedule"), HasSubstr("there is no such schedule or file"),
                    HasSubstr("makes 8 stages, but the model has 4 layers"), HasSubstr("breadth_first")));
  const ProgramResult rounds =
      strata(run_of("run", joined(joined(kSmall, kUntied),
                                  {"parallel.pp=4", "train.grad_accum=6", "parallel.schedule=interleaved"})));
  EXPECT_EQ(rounds.exit_code, 2);
  EXPECT_THAT(rounds.err, HasSubstr("6 micro-batches, which are no multiple of the ranks"));
  EXPECT_FALSE(exists("run"));
}

}  // namespace
}  // namespace strata::test
