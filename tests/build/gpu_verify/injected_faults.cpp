// The faults that scripts/gpu_verify.sh must survive, one per case; run by tests/build/gpu_verify/faults.py.
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>
#include <unistd.h>

namespace {

class InjectedFaultTest : public ::testing::TestWithParam<int> {};

TEST(InjectedFault, Aborts) { std::abort(); }
TEST(InjectedFault, FailsUnlessLaunchesBlock) {
  EXPECT_NE(std::getenv("CUDA_LAUNCH_BLOCKING"), nullptr) << "no launch was waited for";
}
TEST(InjectedFault, Hangs) {
  std::puts("about to hang");
  std::fflush(stdout);
  for (;;) ::pause();
}
TEST(InjectedFault, IsSkipped) { GTEST_SKIP() << "there is no GPU here"; }
TEST_P(InjectedFaultTest, Passes) { EXPECT_LT(GetParam(), 2); }
INSTANTIATE_TEST_SUITE_P(Values, InjectedFaultTest, ::testing::Values(0, 1),
                         [](const auto& test) { return std::string(test.param == 0 ? "zero" : "one"); });

}  // namespace
