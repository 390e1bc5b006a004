// How a process learns that a launcher started others with it.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <strata/parallel/launch.h>

namespace strata {
namespace {

using Launcher = Launch::Launcher;

TEST(LaunchTest, LaunchersAreKnownByTheirVariables) {
  struct Case {
    std::vector<std::string> environment;
    Launcher launcher;
    int processes;
  };
  const std::vector<Case> cases = {
      {{"PATH=/bin"}, Launcher::none, 1},
      {{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=2"}, Launcher::mpi, 4},
      {{"OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0"}, Launcher::mpi, 1},
      {{"PMI_SIZE=3", "PMI_RANK=0"}, Launcher::mpi, 3},
      {{"SLURM_STEP_NUM_TASKS=8", "PMIX_RANK=7"}, Launcher::mpi, 8},
      {{"WORLD_SIZE=2", "RANK=1", "LOCAL_RANK=1"}, Launcher::torchrun, 2},
      {{"SLURM_STEP_NUM_TASKS=2", "PMIX_RANK=0", "WORLD_SIZE=16", "RANK=3", "TORCHELASTIC_RUN_ID=x"},
       Launcher::torchrun,
       16},  // which srun started
      {{"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0"},
       Launcher::mpi,
       1},  // mpirun -np 1 in a job of Slurm
  };
  for (const Case& c : cases) {
    const Launch launch = must(read_launch(c.environment));
    EXPECT_EQ(launch.launcher, c.launcher) << c.environment.front();
    EXPECT_EQ(launch.processes, c.processes) << c.environment.front();
  }
}

TEST(LaunchTest, LaunchersWhoseProcessesCannotBeJoinedAreKnownToo) {
  const std::vector<std::vector<std::string>> environments = {
      {"MV2_COMM_WORLD_SIZE=2", "MV2_COMM_WORLD_RANK=0"},  // MVAPICH
      {"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1"},        // srun without --mpi=pmix
      {"WORLD_SIZE=2", "RANK=1", "MASTER_ADDR=a"},         // Kubeflow, which counts nodes
      {"PET_NNODES=2", "PET_NODE_RANK=0"},                 // Kubeflow without torchrun
      {"JAX_NUM_PROCESSES=2", "JAX_PROCESS_ID=0"},
      {"HOROVOD_SIZE=2", "HOROVOD_RANK=1"},
      {"FLUX_JOB_SIZE=2", "FLUX_TASK_RANK=0"},
      {"JSM_NAMESPACE_SIZE=2", "JSM_NAMESPACE_RANK=0"},
  };
  for (const auto& environment : environments) {
    const Launch launch = must(read_launch(environment));
    EXPECT_EQ(launch.launcher, Launcher::other) << environment.front();
    EXPECT_EQ(launch.processes, 2) << environment.front();
    const Status alone = check_joined(launch, 1, 1);
    EXPECT_EQ(alone.code(), Code::invalid);
    EXPECT_NE(alone.message().find(launch.variable + " = 2: a launcher started 2 processes"),
              std::string::npos);
    EXPECT_NE(alone.message().find("1 rank of 2"), std::string::npos) << alone.message();
  }
}

TEST(LaunchTest, AShellInAJobOfSlurmIsAlone) {
  for (const std::vector<std::string>& environment :
       {std::vector<std::string>{"SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_JOB_ID=1"},
        {"SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0"},
        {"SLURM_STEP_NUM_TASKS=8"}})
    EXPECT_EQ(must(read_launch(environment)).processes, 1) << environment.front();
}

TEST(LaunchTest, AnElasticJobHasItsLargestNumberOfNodes) {
  const auto processes = [](const char* nodes) {
    const std::vector<std::string> environment = {std::string("PET_NNODES=") + nodes};
    return must(read_launch(environment)).processes;
  };
  EXPECT_EQ(processes("1:1"), 1);
  EXPECT_EQ(processes("1:4"), 4);
  EXPECT_EQ(processes("auto"), 1) << "somebody else's variable";
}

TEST(LaunchTest, ASizeThatIsNoneIsRefused) {
  for (const char* size : {"", "0", "-1", "4x"}) {
    const std::vector<std::string> environment = {std::string("OMPI_COMM_WORLD_SIZE=") + size,
                                                  "OMPI_COMM_WORLD_RANK=0"};
    const Status status = read_launch(environment).status();
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_NE(status.message().find("OMPI_COMM_WORLD_SIZE"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace strata
