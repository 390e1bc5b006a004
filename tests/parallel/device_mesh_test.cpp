// Ranks as a grid of axes.
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/parallel/device_mesh.h>

namespace strata {
namespace {

using ::testing::ElementsAre;

TEST(DeviceMeshTest, RanksAndCoordinatesAreInverse) {
  const DeviceMesh mesh = must(DeviceMesh::create({3, 4, 1, 1, 1, 1, 1}, 12));
  EXPECT_EQ(mesh.ranks(), 12);
  std::set<DeviceMesh::Coordinates> seen;
  for (int rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(mesh.rank(mesh.coordinates(rank)), rank);
    seen.insert(mesh.coordinates(rank));
  }
  EXPECT_EQ(seen.size(), 12U);
}

TEST(DeviceMeshTest, ShardsOfACopyAreNeighboursAndCopiesAreFarApart) {
  const DeviceMesh mesh = must(DeviceMesh::create({2, 4, 1, 1, 1, 1, 1}, 8));
  EXPECT_THAT(mesh.along(MeshAxis::fsdp, 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.along(MeshAxis::dp, 6), ElementsAre(2, 6));
  EXPECT_THAT(mesh.along(MeshAxis::tp, 6), ElementsAre(6));
  EXPECT_EQ(mesh.description(), "dp 2 x fsdp 4");
  EXPECT_EQ(DeviceMesh().description(), "1 rank");
}

TEST(DeviceMeshTest, TheStagesOfACopyAreItsNeighbours) {
  const DeviceMesh mesh = must(DeviceMesh::create({2, 1, 3, 1, 1, 1, 2}, 12));
  EXPECT_THAT(mesh.along(MeshAxis::pp, 9), ElementsAre(7, 9, 11));
  EXPECT_EQ(mesh.description(), "dp 2 x pp 3 x tp 2");
}

TEST(DeviceMeshTest, WrongSizesAreRefusedWithTheNumbers) {
  const auto refused = [](const DeviceMesh::Coordinates& sizes, int ranks) {
    return DeviceMesh::create(sizes, ranks).status().to_string();
  };
  EXPECT_EQ(refused({2, 3, 1, 1, 1, 1, 1}, 8),
            "invalid: the mesh dp 2 x fsdp 3 has 6 ranks, but the run has 8");
  EXPECT_EQ(refused({0, 8, 1, 1, 1, 1, 1}, 8), "invalid: the mesh has 0 ranks along dp");
}

}  // namespace
}  // namespace strata
