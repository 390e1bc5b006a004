// Compares what is found of gradients on the GPU with the host's (see device_ops_test.cpp).

#include <gtest/gtest.h>

#include <strata/kernels/subspace.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

class DeviceOpsSubspaceTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
};

// Vectors differ with the bits of GEMMs, but the energy that they capture hardly does.
TEST_P(DeviceOpsSubspaceTest, BasesCaptureWhatTheHostsDo) {
  const LoraParts parts = {{{{0, 200, 24}, {210, 90, 3}}}, 2};
  constexpr std::int64_t rows = 300, columns = 150;
  for (const SubspaceSide side : {SubspaceSide::right, SubspaceSide::left}) {
    const std::int64_t elems = side == SubspaceSide::right ? 27 * columns : 200 * 24 + 90 * 3;
    const BufferView space = workspace(find_basis_workspace_bytes(parts, columns, side, GetParam()));
    expect_close<FindBasisArgs>("find_basis",
                                {in({rows, columns}, 1), in({elems}, 2), unwritten({elems}, DType::f32),
                                 unwritten({2}, DType::f32), space, parts, side},
                                &find_basis_host, &find_basis_async, &FindBasisArgs::energy, 3e-2);
  }
}

TEST_P(DeviceOpsSubspaceTest, WhatIsOutsideHasTheBitsOfTheHost) {
  const LoraParts parts = {{{{0, 20, 3}, {25, 11, 5}}}, 2};
  for (const SubspaceSide side : {SubspaceSide::right, SubspaceSide::left}) {
    const std::int64_t n = side == SubspaceSide::right ? 20 * 3 + 11 * 5 : 8 * 1500;
    expect_same_bits<GradientOutsideArgs>(
        "gradient_outside",
        {in({40, 1500}, 1), in({n}, 2, 0.5, DType::f32), unwritten({1}, DType::f32),
         workspace(gradient_outside_workspace_bytes(parts, 1500, side)), parts, side},
        &gradient_outside_host, &gradient_outside_async, {&GradientOutsideArgs::rho});
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, DeviceOpsSubspaceTest,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace strata::kernels
