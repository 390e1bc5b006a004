// Compares virtual rows on the GPU with the host's (see device_ops_test.cpp).

#include <gtest/gtest.h>

#include <strata/kernels/virtual_rows.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

class DeviceVirtualRowsTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
};

TEST_P(DeviceVirtualRowsTest, RowsHaveTheHostsBits) {
  constexpr std::int64_t sequences = 5, seq = 37, n = 11, h = 135;
  for (const std::int64_t columns : {h, std::int64_t{90}}) {
    const TensorView x = in({sequences * seq, h}, 1), added = in({n, columns}, 2),
                     whole = in({sequences * (n + seq), h}, 3);
    expect_same_bits<SpliceRowsArgs>("splice_rows",
                                     {x, added, unwritten({sequences * (n + seq), h}, GetParam()), n, seq},
                                     &splice_rows_host, &splice_rows_async, {&SpliceRowsArgs::y});
    expect_same_bits<DropRowsArgs>("drop_rows", {whole, unwritten({sequences * seq, h}, GetParam()), n, seq},
                                   &drop_rows_host, &drop_rows_async, {&DropRowsArgs::y});
    for (const bool adds : {false, true})
      expect_same_bits<SpliceRowsBackwardArgs>(
          "splice_rows' gradient", {whole, in({n, columns}, 4, 1.0, DType::f32), seq, adds},
          &splice_rows_backward_host, &splice_rows_backward_async, {&SpliceRowsBackwardArgs::dadded});
    const TensorView positions = integers(test::Values(9).below(sequences * seq, 2 * n));
    const ReplaceRowsArgs replaces = {x, positions, added, unwritten({sequences * seq, h}, GetParam())};
    expect_same_bits("replace_rows", replaces, &replace_rows_host, &replace_rows_async,
                     {&ReplaceRowsArgs::y});
    expect_same_bits_in_place("replace_rows", replaces, &replace_rows_host, &replace_rows_async,
                              &ReplaceRowsArgs::x, &ReplaceRowsArgs::y);
  }
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceVirtualRowsTest,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
