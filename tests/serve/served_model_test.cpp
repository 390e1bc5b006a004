#include <gtest/gtest.h>

#include <strata/serve/service.h>

namespace strata {
namespace {

TEST(ServedModelTest, ItsNameIsThatOfItsFolder) {
  EXPECT_EQ(model_name_of("models/Qwen3-0.6B"), "Qwen3-0.6B");
  EXPECT_EQ(model_name_of("runs/demo/"), "demo");
  EXPECT_EQ(model_name_of("runs/demo/."), "demo");
  EXPECT_NE(model_name_of("."), ".");
  EXPECT_EQ(model_name_of("/"), "model");
}

}  // namespace
}  // namespace strata
