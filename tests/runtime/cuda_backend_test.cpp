#include "runtime/backend_contract.h"

namespace strata {

INSTANTIATE_TEST_SUITE_P(Backends, BackendContractTest, ::testing::Values(BackendKind::cuda),
                         [](const auto& test) { return name_of(test.param); });

TEST(CudaBackendTest, WithoutAGpuItIsUnsupportedAndTheReasonIsNamed) {
  if (cuda_available()) GTEST_SKIP() << cuda_status();
  const auto pool = must(ThreadPool::create(1));
  const Status status = create_cuda_backend({}, *pool).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_EQ(status.message(), cuda_status());
  EXPECT_EQ(cuda_status().rfind("no GPU: ", 0), 0u) << cuda_status();
}

TEST(CudaBackendTest, AMissingDeviceIsNamed) {
  if (!cuda_available()) GTEST_SKIP() << cuda_status();
  const auto pool = must(ThreadPool::create(1));
  const Status status = create_cuda_backend({.device = 4096}, *pool).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("4096"), std::string_view::npos);
}

}  // namespace strata
