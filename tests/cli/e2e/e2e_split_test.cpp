// Runs whose ranks share the model.
#include <cmath>

#include "cli/e2e/e2e_shared_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliSplitE2e : public CliSharedE2e {};

TEST_F(CliSplitE2e, EveryPresetTrainsToTheLossesOfOneRank) {
  train("one", {});
  const Words four = {"parallel.tp=2", "parallel.tp2=2"},
              eight = {"parallel.tp=2", "parallel.tp2=2", "parallel.tp3=2"};
  const std::vector<std::pair<std::string, Words>> layouts = {
      {"megatron", {"parallel.tp=2"}},
      {"megatron+sp,sliced", {"parallel.tp=4"}},
      {"megatron+sp,vocab", {"parallel.tp=2", "parallel.ranks=4", "parallel.zero=3"}},
      {"ulysses", {"parallel.cp=2"}},
      {"allgather", {"parallel.cp=4"}},
      {"ring", {"parallel.cp=4"}},
      {"megatron,ring", {"parallel.tp=2", "parallel.cp=2"}},
      {"2d", four},
      {"2.5d", eight},
      {"3d", eight}};
  for (const auto& [preset, axes] : layouts) {
    train(preset, joined(axes, {"parallel.shard=" + preset}));
    expect_near(preset, "one");
  }
}

TEST_F(CliSplitE2e, ThePlanSaysWhatIsSharedAndWhatIsExchanged) {
  const ProgramResult plan = strata(tiny("plan", joined(kSmall, {"parallel.tp=2"})));
  EXPECT_EQ(plan.exit_code, 0) << plan.output();
  EXPECT_THAT(plan.out, AllOf(HasSubstr("split    layers.*.qkv.weight [192, 64] -> [96, 64]; "),
                              HasSubstr("split    a micro-batch has 8 x all_reduce along tp (")));
}

// Each with a layout that makes the most of it.
TEST_F(CliSplitE2e, SixteenBitsFp8AndPackedDocumentsTrainToTheLossesOfOneRank) {
  const Words tp = {"parallel.tp=2", "parallel.shard=megatron+sp,vocab"},
              cp = {"parallel.cp=4", "parallel.shard=ring"};
  const std::vector<std::tuple<Words, Words, double>> cases = {
      {{"train.dtype=bf16"}, tp, 5e-3},
      {{"train.dtype=f16"}, cp, 5e-3},
      {{"train.dtype=bf16", "train.fp8=true"}, {"parallel.tp=2"}, 2e-2},
      {{"data.packing=pack"}, cp, 1e-4},
      {{"train.recompute=full", "offload.activations=pinned"}, tp, 1e-4}};
  for (const auto& [words, split, tolerance] : cases) {
    SCOPED_TRACE(words.front());
    train("one", joined(words, {"--overwrite"}));
    train("split", joined(joined(words, split), {"--overwrite"}));
    expect_near("split", "one", tolerance);
  }
}

TEST_F(CliSplitE2e, AnyLayoutResumesARunAndOtherCommandsReadIt) {
  train("whole", {});
  train("run", {"parallel.tp=4", "parallel.shard=megatron+sp"});
  ASSERT_EQ(strata({"export", "run", "--out", "exported"}).exit_code, 0);
  for (const Words& words : {Words{"eval", "run"}, Words{"generate", "run", "--prompt", "It is"}}) {
    const ProgramResult result = strata(words);
    EXPECT_EQ(result.exit_code, 0) << words.front() << ": " << result.output();
  }
  const auto loss = [&](const Words& layout) {
    const ProgramResult result = strata(joined({"eval", "run", "--json"}, layout));
    return result.exit_code == 0 ? nlohmann::json::parse(result.out)["loss"].get<double>() : -1;
  };
  const double alone = loss({});
  EXPECT_GT(alone, 0);
  EXPECT_NEAR(loss({"parallel.tp=2", "parallel.shard=megatron"}), alone, 1e-5);
  EXPECT_NEAR(loss({"parallel.tp=2", "parallel.cp=2", "parallel.shard=megatron,ring"}), alone, 1e-5);
  const auto text = [&](const Words& layout) {
    const Words sampled = {"generate", "run", "--prompt", "It is", "--prompt", "A", "--temperature", "1"};
    return strata(joined(sampled, layout)).out;
  };
  EXPECT_GT(text({}).size(), 10u);
  for (const Words& layout :
       {Words{"parallel.tp=2"}, Words{"parallel.tp=4", "parallel.shard=megatron,vocab"}})
    EXPECT_EQ(text(layout), text({}));
  const ProgramResult refused =
      strata({"generate", "run", "parallel.tp=1", "parallel.cp=2", "parallel.shard=ring"});
  EXPECT_EQ(refused.exit_code, 2) << refused.output();
  EXPECT_THAT(refused.err, HasSubstr("along tp alone"));
  must_train(
      {"train", "--resume", "run", "train.steps=6", "parallel.tp=2", "parallel.tp2=2", "parallel.shard=2d"});
  must_train(
      {"train", "--resume", "run", "train.steps=8", "parallel.tp=1", "parallel.tp2=1", "parallel.shard="});
  for (const char* steps : {"train.steps=6", "train.steps=8"})
    must_train({"train", "--resume", "whole", steps});
  expect_near("run", "whole");
}

TEST_F(CliSplitE2e, ASequenceOrALayerThatOneRankRefusesTrainsOnFour) {
  const Words sequence = {"model.seq=512",      "train.micro_batch=1", "memory.device=2560KiB",
                          "memory.pinned=8MiB", "memory.nvme=64MiB",   "train.recompute=full"};
  const Words layer = {"model.ffn=8192",     "train.micro_batch=1", "memory.device=3MiB",
                       "memory.pinned=8MiB", "memory.nvme=256MiB",  "train.recompute=full"};
  const std::vector<std::pair<Words, Words>> cases = {{sequence, {"parallel.cp=4", "parallel.shard=ring"}},
                                                      {layer, {"parallel.tp=4"}}};
  for (const auto& [words, split] : cases) {
    const ProgramResult refused = strata(run_of("one", joined(kSmall, words)));
    EXPECT_EQ(refused.exit_code, 3) << refused.output();
    train("four", joined(joined(words, split), {"--overwrite"}));
  }
}

TEST_F(CliSplitE2e, AllProblemsOfALayoutAreReportedAtOnce) {
  const ProgramResult result = strata(run_of(
      "run",
      joined(kSmall, {"parallel.tp=2", "parallel.cp=2",
                      "parallel.shard=megatorn,layers.*.qkv.weight 0:tp,layers.*/add 0:pp,ulysses,3d"})));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("'megatorn' is no preset"), HasSubstr("there is no axis pp"),
                                HasSubstr("splits along tp2, but parallel.tp2 is 1")));
  const ProgramResult heads = strata(run_of("run", joined(kSmall, {"parallel.tp=3"})));
  EXPECT_EQ(heads.exit_code, 2);
  EXPECT_THAT(heads.err, AllOf(HasSubstr("parallel.tp = 3"), HasSubstr("on 3 ranks")));
  EXPECT_FALSE(exists("run"));
}

using CliSplitMpiE2e = CliMpiE2e;

TEST_F(CliSplitMpiE2e, AMeshOfEightRanksHasTheSameBitsInAnyNumberOfProcesses) {
  const Words mesh =
      joined(kSmall, {"parallel.tp=2", "parallel.cp=2", "parallel.shard=megatron,ring", "parallel.zero=3"});
  must_train(run_of("1", joined(mesh, {"parallel.ranks=8"})));
  for (const int processes : {8, 4, 2}) {
    const std::string name = str(processes);
    const ProgramResult result =
        mpirun(processes, run_of(name, joined(mesh, {"--ranks-per-process", str(8 / processes)})));
    ASSERT_EQ(result.exit_code, 0) << result.output();
    EXPECT_EQ(loss_bits(name), loss_bits("1")) << name;
    EXPECT_EQ(digest(name), digest("1")) << name;
    expect_within_limits(name, static_cast<std::size_t>(processes));
  }
}

TEST_F(CliSplitMpiE2e, RanksOfOneProcessNeedMpiAndEqualNumbers) {
  const ProgramResult alone = strata(run_of("run", {"--ranks-per-process", "2"}));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--ranks-per-process 2 needs mpirun or srun"));
  const ProgramResult nine = mpirun(2, run_of("run", {"--ranks-per-process", "9"}));
  EXPECT_EQ(nine.exit_code, 2) << nine.output();
  EXPECT_THAT(nine.err, HasSubstr("a process has 1 to 8 ranks over MPI, not 9"));
}

}  // namespace
}  // namespace strata::test
