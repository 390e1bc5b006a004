// A process that a launcher started as one of several never trains alone.
#include <csignal>

#include "cli/e2e/e2e_ranks_fixture.h"

namespace strata::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CliLaunchersE2e : public CliE2e {
 protected:
  ProgramResult train_in(const Words& environment, const Words& more = {}) {
    ProgramOptions options = options_;
    options.environment.insert(options.environment.end(), environment.begin(), environment.end());
    Words words = {"--out", "run", "train.steps=2", "train.eval_every=0"};
    words.insert(words.end(), more.begin(), more.end());
    return strata(tiny("train", words), options);
  }
};

TEST_F(CliLaunchersE2e, OneOfSeveralProcessesIsRefusedBeforeAnythingIsWritten) {
  const std::vector<Words> environments = {
      {"PMI_SIZE=2", "PMI_RANK=0"},  // MPICH, Intel MPI, srun with PMI
      {"PMI_SIZE=2", "PMI_RANK=1", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1"},  // hydra
      {"MV2_COMM_WORLD_SIZE=2", "MV2_COMM_WORLD_RANK=0"},                      // MVAPICH
      {"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "SLURM_NTASKS=2"},          // srun without --mpi
      {"WORLD_SIZE=2", "RANK=0", "MASTER_ADDR=a", "MASTER_PORT=1"},            // Kubeflow
      {"PET_NNODES=2", "PET_NODE_RANK=1"},                                     // Kubeflow without torchrun
      {"WORLD_SIZE=2"},                                                        // it counts nodes
      {"JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=0"},
      {"HOROVOD_SIZE=2", "HOROVOD_RANK=0"},
      {"FLUX_JOB_SIZE=2", "FLUX_TASK_RANK=1"},
      {"JSM_NAMESPACE_SIZE=2", "JSM_NAMESPACE_RANK=0"},
  };
  for (const Words& environment : environments) {
    const ProgramResult refused = train_in(environment);
    const std::string variable = environment.front().substr(0, environment.front().find('='));
    EXPECT_EQ(refused.exit_code, 2) << variable << refused.output();
    EXPECT_THAT(refused.err, AllOf(HasSubstr(variable + " = 2: a launcher started 2 processes"),
                                   HasSubstr("found 1 rank of 2"), HasSubstr("parallel.ranks=1")));
    EXPECT_FALSE(exists("run")) << variable;
  }
}

// torchrun, accelerate and DeepSpeed's launcher; without a GPU for each they are refused, too.
TEST_F(CliLaunchersE2e, TorchrunsProcessesDoNotTrainAloneEither) {
  const ProgramResult refused = train_in({"WORLD_SIZE=2", "RANK=0", "LOCAL_RANK=0", "TORCHELASTIC_RUN_ID=x"});
  EXPECT_EQ(refused.exit_code, 2) << refused.output();
  EXPECT_THAT(refused.err, HasSubstr("WORLD_SIZE"));
  EXPECT_FALSE(exists("run"));
}

TEST_F(CliLaunchersE2e, AProcessThatIsAloneOrAsksForItTrains) {
  const std::vector<Words> environments = {{"SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_JOB_ID=1"},
                                           {"SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0"},
                                           {"WORLD_SIZE=1", "RANK=0", "LOCAL_RANK=0"}};
  for (const Words& environment : environments)
    EXPECT_EQ(train_in(environment, {"--overwrite"}).exit_code, 0) << environment.front();
  for (const char* variable : {"PMI_SIZE=2", "WORLD_SIZE=2"}) {
    const ProgramResult asked = train_in({variable, "PMI_RANK=0"}, {"--overwrite", "parallel.ranks=1"});
    EXPECT_EQ(asked.exit_code, 0) << asked.output();
  }
}

TEST_F(CliLaunchersE2e, AFileMayAskForARunOfItsOwnAndItsRanksMayBeThreads) {
  write("one.toml", "[parallel]\nranks = 1\n");
  const ProgramResult one = train_in({"WORLD_SIZE=2"}, {"--overwrite", "one.toml"});
  EXPECT_EQ(one.exit_code, 0) << one.output();
  const ProgramResult threads =
      train_in({"WORLD_SIZE=2"}, {"--overwrite", "parallel.ranks=2", "parallel.transport=threads"});
  EXPECT_EQ(threads.exit_code, 0) << threads.output();
}

TEST_F(CliLaunchersE2e, Sigusr1EndsARunThatCanBeResumed) {
  RunningProgram program(
      STRATA_PROGRAM,
      tiny("train", {"--out", "run", "train.steps=4000", "log.every=1", "log.progress=plain"}), options_);
  ASSERT_TRUE(program.wait_for("step 3/"));
  program.send(SIGUSR1);
  program.send(SIGUSR1);  // mpirun forwards it, and Slurm may send it to all
  const ProgramResult stopped = program.finish();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output();
  EXPECT_EQ(list("run/checkpoints").size(), 1u);
}

#ifdef STRATA_MPIRUN
using CliRankFoldersE2e = CliMpiE2e;

TEST_F(CliRankFoldersE2e, RanksThatDoNotSeeTheRunFolderEndBeforeTheFirstStep) {
  must(posix_io().make_dirs(file("a")));
  must(posix_io().make_dirs(file("b")));
  const Words train = run_of("run", {"data.train=" + file("train.txt"), "data.val=" + file("val.txt"),
                                     "data.cache_dir=" + file("tokens"), "memory.nvme_dir=" + file("nvme")});
  Words all = {"--oversubscribe", "--allow-run-as-root", "--bind-to", "none"};
  for (const char* folder : {"a", "b"}) {
    for (const std::string& word : {std::string("-np"), std::string("1"), std::string("-wdir"), file(folder),
                                    std::string(STRATA_PROGRAM)})
      all.push_back(word);
    all.insert(all.end(), train.begin(), train.end());
    if (folder == std::string("a")) all.emplace_back(":");
  }
  const ProgramResult refused = run_program(STRATA_MPIRUN, all, options_);
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.output(), AllOf(HasSubstr("does not see " + file("b/run")),
                                      HasSubstr("name a folder that all ranks share")));
  EXPECT_FALSE(exists("a/run")) << "nothing is left of a run that did not begin";
}
#endif

}  // namespace
}  // namespace strata::test
