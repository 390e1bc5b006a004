// Compares low-rank adapters on the GPU with the host's (see device_ops_test.cpp).

#include <gtest/gtest.h>

#include <strata/kernels/lora.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

class DeviceLoraTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
};

// Parts with ranks that leave the next ones unaligned, and columns without an adapter.
TEST_P(DeviceLoraTest, LoraIsCloseToTheHosts) {
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : GetParam() == DType::f16 ? 2e-3 : 1e-2;
  const LoraParts kParts[] = {{{{{0, 64, 3}, {96, 32, 8}, {128, 7, 1}}}, 3}, {{{{0, 135, 16}}}, 1}};
  for (const LoraParts& parts : kParts) {
    std::int64_t ranks = 0, elems = 0;
    for (const LoraPart& part : parts.all()) {
      ranks += part.rank;
      elems += part.rows * part.rank;
    }
    constexpr std::int64_t rows = 70, n = 135;
    const TensorView base = in({rows, n}, 1), u = in({rows, ranks}, 2), b = in({elems}, 3),
                     dy = in({rows, n}, 4);
    expect_close<LoraUpArgs>("lora_up", {base, u, b, unwritten({rows, n}, GetParam()), parts}, &lora_up_host,
                             &lora_up_async, &LoraUpArgs::y, tolerance);
    expect_close<LoraUpBackwardInputArgs>(
        "lora_up's du", {dy, b, unwritten({rows, ranks}, GetParam()), parts}, &lora_up_backward_input_host,
        &lora_up_backward_input_async, &LoraUpBackwardInputArgs::du, tolerance);
    for (const bool adds : {false, true})
      expect_close<LoraUpBackwardWeightArgs>("lora_up's db",
                                             {dy, u, in({elems}, 6, 1.0, DType::f32), parts, adds},
                                             &lora_up_backward_weight_host, &lora_up_backward_weight_async,
                                             &LoraUpBackwardWeightArgs::db, tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceLoraTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
