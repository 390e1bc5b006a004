#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/profile/compute_device.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

class GemmAlgorithmsTest : public ::testing::Test {
 protected:
  Result<bool> loaded_for(const std::string& implementation) {
    return load_gemm_algorithms(file_, implementation, posix_io());
  }
  void write(const std::string& text) { must(write_text_atomically(posix_io(), file_, text)); }

  test::TempDir dir_;
  const std::string file_ = dir_.path() + "/gemm_algorithms.txt";
};

TEST_F(GemmAlgorithmsTest, AMissingFileIsNoError) {
  EXPECT_TRUE(must(loaded_for("cuBLASLt 13.1.0 on a GPU")));
}

TEST_F(GemmAlgorithmsTest, AFileOfAnotherLibraryOrGpuIsIgnored) {
  write(gemm_algorithms_text("cuBLASLt 13.1.0 on a GPU"));
  EXPECT_FALSE(must(loaded_for("cuBLASLt 13.2.0 on a GPU")));
  EXPECT_FALSE(must(loaded_for("cuBLASLt 13.1.0 on a GPU of another kind")));
}

TEST_F(GemmAlgorithmsTest, ADamagedFileIsAnErrorThatNamesIt) {
  write(gemm_algorithms_text("cuBLASLt 13.1.0 on a GPU") + "0 0 1 nonsense\n");
  const auto loaded = loaded_for("cuBLASLt 13.1.0 on a GPU");
  ASSERT_FALSE(loaded.has_value());
  EXPECT_THAT(std::string(loaded.status().message()), ::testing::HasSubstr(file_));
  write(gemm_algorithms_text("cuBLASLt 13.1.0 on a GPU") + "attention 0 1 nonsense\n");
  const auto attention = loaded_for("cuBLASLt 13.1.0 on a GPU");
  ASSERT_FALSE(attention.has_value());
  EXPECT_THAT(std::string(attention.status().message()), ::testing::HasSubstr(file_));
}

}  // namespace
}  // namespace strata
