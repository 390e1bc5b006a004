// How libstrata_mpi.so is found, and what is said when it is not.
#include <array>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/parallel/mpi_world.h>

#include "mpi/mpi_library.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

TEST(MpiLibraryTest, AFileThatIsNowhereIsReportedWithAllPlacesThatWereTried) {
  const std::array<std::string, 2> paths = {"/nowhere/libstrata_mpi.so", "/elsewhere/libstrata_mpi.so"};
  EXPECT_EQ(detail::load_mpi(paths).status().to_string(),
            "unsupported: MPI needs libstrata_mpi.so, which is in none of: /nowhere/libstrata_mpi.so, "
            "/elsewhere/libstrata_mpi.so");
}

TEST(MpiLibraryTest, AFileThatCannotBeLoadedIsReportedWithTheReason) {
  const test::TempDir folder;
  const std::array<std::string, 1> paths = {folder.path() + "/libstrata_mpi.so"};
  std::ofstream(paths[0]) << "not a library";
  const Status refused = detail::load_mpi(paths).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is openmpi-bin installed? " + paths[0]));
}

TEST(MpiLibraryTest, ALibraryWithoutTheFunctionsIsRefused) {
  const std::array<std::string, 1> paths = {"/lib/x86_64-linux-gnu/libm.so.6"};
  const Status refused = detail::load_mpi(paths).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr(paths[0]));
}

TEST(MpiLibraryTest, ABuildWithoutMpiSaysHowToGetIt) {
  if (built_with_mpi()) GTEST_SKIP() << "this build has MPI";
  EXPECT_THAT(std::string(open_mpi_world().status().message()), HasSubstr("install libopenmpi-dev"));
}

}  // namespace
}  // namespace strata
