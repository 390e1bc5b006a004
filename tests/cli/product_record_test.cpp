#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "machine/compute_device.h"
#include "support/temp_dir.h"

namespace strata::cli {
namespace {

class ProductRecordTest : public ::testing::Test {
 protected:
  Result<bool> taken_by(const std::string& products) {
    return make_products_as_in(file_, products, posix_io());
  }
  void write(const std::string& text) { must(write_text_atomically(posix_io(), file_, text)); }

  test::TempDir dir_;
  const std::string file_ = dir_.path() + "/products.txt";
};

TEST_F(ProductRecordTest, ThereNeedBeNone) { EXPECT_TRUE(must(taken_by("cuBLASLt 13.1.0 on a GPU"))); }

TEST_F(ProductRecordTest, ThatOfAnotherLibraryOrGpuIsLeftAlone) {
  write(record_of_products("cuBLASLt 13.1.0 on a GPU"));
  EXPECT_FALSE(must(taken_by("cuBLASLt 13.2.0 on a GPU")));
  EXPECT_FALSE(must(taken_by("cuBLASLt 13.1.0 on a GPU of another kind")));
}

TEST_F(ProductRecordTest, ADamagedOneIsAnErrorThatNamesTheFile) {
  write(record_of_products("cuBLASLt 13.1.0 on a GPU") + "0 0 1 nonsense\n");
  const auto taken = taken_by("cuBLASLt 13.1.0 on a GPU");
  ASSERT_FALSE(taken.has_value());
  EXPECT_THAT(std::string(taken.status().message()), ::testing::HasSubstr(file_));
  write(record_of_products("cuBLASLt 13.1.0 on a GPU") + "attention 0 1 nonsense\n");
  const auto attention = taken_by("cuBLASLt 13.1.0 on a GPU");
  ASSERT_FALSE(attention.has_value());
  EXPECT_THAT(std::string(attention.status().message()), ::testing::HasSubstr(file_));
}

}  // namespace
}  // namespace strata::cli
