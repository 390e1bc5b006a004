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
      {{"SLURM_STEP_NUM_TASKS=8"}, Launcher::none, 1},  // srun without MPI
      {{"WORLD_SIZE=2"}, Launcher::none, 1},
      {{"WORLD_SIZE=2", "RANK=1"}, Launcher::torchrun, 2},
  };
  for (const Case& c : cases) {
    const Launch launch = must(read_launch(c.environment));
    EXPECT_EQ(launch.launcher, c.launcher) << c.environment.front();
    EXPECT_EQ(launch.processes, c.processes) << c.environment.front();
  }
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
