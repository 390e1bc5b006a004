// Runs of several ranks: the bits of one rank, resumed by any number of ranks, and what is refused.
#include <signal.h>

#include "cli/e2e/e2e_ranks_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliRanksE2e, EveryTechniqueHasTheBitsAndTheCheckpointsOfOneRank) {
  must_train(run_of("one"));
  must_train(run_of("auto", {"parallel.ranks=2"}));
  must_train(run_of("ddp", {"parallel.ranks=3", "parallel.zero=0"}));
  must_train(run_of("three", {"parallel.ranks=4", "parallel.zero=3"}));
  must_train(run_of("hsdp", {"parallel.ranks=4", "parallel.zero=3", "parallel.shard_ranks=2"}));
  for (const char* name : {"auto", "ddp", "three", "hsdp"}) expect_same(name, "one");
}

TEST_F(CliRanksE2e, AnyNumberOfRanksResumesARunToTheSameBits) {
  for (const auto& [first, then] :
       {std::pair(1, 1), std::pair(1, 4), std::pair(4, 1), std::pair(2, 3), std::pair(6, 2)}) {
    const std::string name = str(first, "-", then);
    must_train(run_of(name, {str("parallel.ranks=", first), "train.steps=4"}));
    must_train({"train", "--resume", name, "train.steps=8", str("parallel.ranks=", then)});
    EXPECT_EQ(digest(name), digest("1-1")) << name;
  }
}

TEST_F(CliRanksE2e, ASignalStopsAllRanksAfterAStepAndTheResumedRunHasTheSameBits) {
  must_train(run_of("whole", {"train.steps=30"}));
  RunningProgram program(STRATA_PROGRAM, run_of("run", {"train.steps=30", "parallel.ranks=3"}), options_);
  ASSERT_TRUE(program.wait_for("step 5/30"));
  program.send(SIGTERM);
  const ProgramResult stopped = program.finish();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output();
  must_train({"train", "--resume", "run"});
  EXPECT_EQ(digest("run"), digest("whole"));
  EXPECT_EQ(loss_bits("run"), loss_bits("whole"));
}

// The states of the model fit in the budgets of four ranks together, but not in those of one.
TEST_F(CliRanksE2e, AModelThatOneRankRefusesTrainsOnFourOverThreeTiers) {
  const Words budgets = {"model.layers=8",     "model.hidden=128",  "memory.device=2MiB",
                         "memory.pinned=2MiB", "memory.nvme=10MiB", "train.micro_batch=1"};
  const ProgramResult refused = strata(run_of("one", budgets));
  EXPECT_EQ(refused.exit_code, 3) << refused.output();
  Words four = budgets;
  four.insert(four.end(), {"parallel.ranks=4", "parallel.zero=3"});
  must_train(run_of("four", four));
  EXPECT_GT(summary("four")["peak_bytes"]["nvme"], 0);
  for (const char* tier : {"device", "pinned", "nvme"})
    EXPECT_EQ(summary("four")["peak_bytes"][tier], summary("four")["planned_bytes"][tier]) << tier;
  expect_within_limits("four", 1);
  Words whole = {"model.layers=8", "model.hidden=128", "memory.nvme=64MiB", "train.micro_batch=1"};
  must_train(run_of("whole", whole));
  EXPECT_EQ(digest("four"), digest("whole"));
}

TEST_F(CliRanksE2e, OtherCommandsWorkOnARunOfSeveralRanks) {
  must_train(run_of("run", {"parallel.ranks=4"}));
  for (const Words& words :
       {Words{"eval", "run"}, Words{"generate", "run", "--prompt", "It is"},
        Words{"export", "run", "--out", "exported"}, tiny("plan", {"train.grad_accum=4", "parallel.ranks=4"}),
        tiny("verify", {"train.grad_accum=2", "parallel.ranks=2"})}) {
    const ProgramResult result = strata(words);
    EXPECT_EQ(result.exit_code, 0) << words.front() << ": " << result.output();
  }
}

TEST_F(CliRanksE2e, AllProblemsAreReportedBeforeAnythingStarts) {
  const ProgramResult result =
      strata(run_of("run", {"parallel.ranks=5", "parallel.shard_ranks=2", "parallel.zero=1",
                            "parallel.reduce=each", "optim.name=lamb", "offload.step_mode=hybrid"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("4 problems"), HasSubstr("train.grad_accum"),
                    HasSubstr("is not a multiple of parallel.ranks = 5"),
                    HasSubstr("does not divide parallel.ranks = 5"), HasSubstr("parallel.reduce is each"),
                    HasSubstr("lamb cannot where ranks share tensors")));
  EXPECT_FALSE(exists("run"));
  const ProgramResult no_launcher = strata(run_of("run", {"parallel.ranks=4", "parallel.transport=mpi"}));
  EXPECT_EQ(no_launcher.exit_code, 2);
  EXPECT_THAT(no_launcher.err, HasSubstr("use mpirun -np 4"));
  const ProgramResult too_small = strata(run_of("run", {"parallel.ranks=4", "memory.device=64KiB"}));
  EXPECT_EQ(too_small.exit_code, 3);
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliMpiE2e, ProcessesHaveTheBitsAndTheCheckpointsOfOneRank) {
  must_train(run_of("one"));
  for (const auto& [ranks, zero] : {std::pair(2, "parallel.zero=3"), std::pair(4, "parallel.zero=2")}) {
    const std::string name = str("mpi", ranks);
    const ProgramResult result = mpirun(ranks, run_of(name, {zero}));
    ASSERT_EQ(result.exit_code, 0) << result.output();
    EXPECT_THAT(result.out, HasSubstr(str("ranks    ", ranks, " (mpi), ZeRO-")));
    expect_same(name, "one");
    expect_within_limits(name, static_cast<std::size_t>(ranks));
    for (const nlohmann::json& process : summary(name)["processes"])
      EXPECT_GT(process["transport_bytes"], 1 << 20);
  }
  const ProgramResult resumed = mpirun(3, {"train", "--resume", "mpi4", "train.steps=12"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output();
  must_train({"train", "--resume", "one", "train.steps=12", "parallel.ranks=2"});
  EXPECT_EQ(digest("mpi4"), digest("one"));
}

TEST_F(CliMpiE2e, AnErrorOfRankZeroEndsAllRanksBeforeTheFirstStep) {
  const ProgramResult shares = mpirun(2, run_of("run", {"train.grad_accum=3"}));
  EXPECT_EQ(shares.exit_code, 2) << shares.output();
  EXPECT_THAT(shares.err, HasSubstr("train.grad_accum is 3, which 2 ranks cannot share equally"));
  const ProgramResult differs = mpirun(2, run_of("run", {"parallel.ranks=4"}));
  EXPECT_EQ(differs.exit_code, 2) << differs.output();
  EXPECT_THAT(differs.err, HasSubstr("parallel.ranks = 4, but the launcher started 2"));
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliMpiE2e, ProcessesMeasureTheirNetworkAndOneProcessKeepsTheRate) {
  const Words bench = {"bench", "--quick"};
  const ProgramResult refused = mpirun(2, bench);
  EXPECT_EQ(refused.exit_code, 2) << refused.output();
  EXPECT_THAT(refused.err, HasSubstr("there is no machine profile"));
  ASSERT_EQ(strata(bench).exit_code, 0);
  const ProgramResult measured = mpirun(2, bench);
  ASSERT_EQ(measured.exit_code, 0) << measured.output();
  EXPECT_THAT(measured.out, HasSubstr("sent by each of 2 processes"));
  // The profile before and after its section of the network.
  const auto profile = [&] {
    const std::string text = read_all(file("cache/strata/machine.toml"));
    return std::pair(text.substr(0, text.find("[network]")), text.substr(text.find("[network]")));
  };
  const auto [machine, network] = profile();
  EXPECT_THAT(network, AllOf(HasSubstr("\nranks = 2\n"), Not(HasSubstr("\nthreads_gb_per_s = 0\n")),
                             Not(HasSubstr("\ngb_per_s = 0\n"))));
  ASSERT_EQ(mpirun(3, bench).exit_code, 0);
  EXPECT_EQ(profile().first, machine);  // only the network was measured again
  EXPECT_THAT(profile().second, HasSubstr("\nranks = 3\n"));
  const ProgramResult plan =
      strata(tiny("plan", {"parallel.ranks=2", "train.grad_accum=2", "memory.nvme=0"}));
  EXPECT_THAT(plan.out, HasSubstr("measured with 3 processes"));
  const std::string of_three = profile().second;
  ASSERT_EQ(strata(bench).exit_code, 0);
  // The rates of threads, in the same section, were measured again.
  const auto of_processes = [](const std::string& text) {
    return std::pair(text.substr(text.find("\ngb_per_s"), 20), text.substr(text.find("\nranks"), 10));
  };
  EXPECT_EQ(of_processes(profile().second), of_processes(of_three));
}

// An example in the documentation, at the number of ranks that it shows.
TEST_F(CliMpiE2e, TheExampleTrains) {
  const std::string toml = str(STRATA_SOURCE_DIR, "/examples/multi_rank/run.toml");
  for (const int ranks : {2, 4}) {
    const std::string name = str("example", ranks);
    const ProgramResult result =
        mpirun(ranks, {"train", toml, "--out", name, "train.steps=3", "data.val=[]"});
    EXPECT_EQ(result.exit_code, 0) << result.output();
  }
  EXPECT_EQ(digest("example2"), digest("example4"));
}

}  // namespace
}  // namespace strata::test
