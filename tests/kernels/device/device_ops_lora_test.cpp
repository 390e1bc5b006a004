// Compares low-rank adapters on the GPU with the host's (see device_ops_test.cpp).

#include <gtest/gtest.h>

#include <strata/kernels/dora.h>
#include <strata/kernels/lora.h>
#include <strata/kernels/lora_rows.h>
#include <strata/kernels/weight_quant.h>

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

// Norms have the bits of the GEMMs' sums, which differ from the host's.
TEST_P(DeviceLoraTest, NormsOfDoraAreCloseToTheHosts) {
  constexpr std::int64_t columns = 1100;
  const LoraParts parts = {{{{0, 64, 3}, {96, 39, 24}}}, 2};
  const TensorView w = in({135, columns}, 1), a = in({27, columns}, 2), b = in({64 * 3 + 39 * 24}, 3);
  const QuantizedMatrix matrix = {WeightFormat::nf4_dq, columns, {100, 35}};
  const TensorView bytes = unwritten({matrix.bytes()}, DType::u8);
  quantize_matrix(matrix, test::Values(7).floats(matrix.n_elems(), 0.02), {bytes.data, bytes.bytes()},
                  *pool_);
  const BufferView space = workspace(dora_norm_workspace_bytes(parts, columns, matrix, GetParam()));
  for (const auto& [of, held] : {std::pair{QuantizedMatrix{}, w}, {matrix, bytes}})
    expect_close<DoraNormArgs>("dora_norm",
                               {held, a, b, unwritten({103}, DType::f32), space, parts, 0.5f, of},
                               &dora_norm_host, &dora_norm_async, &DoraNormArgs::norm, 1e-5);
}

TEST_P(DeviceLoraTest, ScaledColumnsHaveTheBitsOfTheHost) {
  constexpr std::int64_t n = 135, rows = 5000;  // several blocks of rows
  const LoraParts parts = {{{{0, 64, 3}, {96, 39, 8}}}, 2};
  const TensorView x = in({rows, n}, 1), dy = in({rows, n}, 2), bias = in({n}, 3),
                   m = in({103}, 4, 1.0, DType::f32), norm = in({103}, 5, 1.0, DType::f32);
  for (const TensorView& added : {bias, TensorView{}})
    expect_same_bits<ScaleColumnsArgs>("scale_columns",
                                       {x, m, norm, added, unwritten({rows, n}, GetParam()), parts},
                                       &scale_columns_host, &scale_columns_async, {&ScaleColumnsArgs::y});
  const BufferView space = workspace(scale_columns_backward_workspace_bytes(rows, 103));
  for (const bool adds : {false, true})
    expect_same_bits<ScaleColumnsBackwardWeightArgs>(
        "scale_columns's dm", {dy, x, norm, in({103}, 6, 1.0, DType::f32), space, parts, adds},
        &scale_columns_backward_weight_host, &scale_columns_backward_weight_async,
        {&ScaleColumnsBackwardWeightArgs::dm});
}

// Rows of the adapter, of another one and of none; more sums than a work item of the host has.
TEST_P(DeviceLoraTest, AdaptersOfRowsHaveTheHostsBits) {
  const LoraParts kParts[] = {{{{{0, 64, 3}, {96, 32, 8}, {128, 7, 1}}}, 3}, {{{{0, 135, 16}}}, 1}};
  for (const LoraParts& parts : kParts) {
    std::int64_t ranks = 0, elems = 0;
    for (const LoraPart& part : parts.all()) {
      ranks += part.rank;
      elems += part.rows * part.rank;
    }
    constexpr std::int64_t rows = 5, n = 135, inner = 1030;
    LoraRowsArgs args = {in({rows, n}, 1),
                         in({rows, inner}, 2),
                         in({ranks, inner}, 3),
                         in({elems}, 4),
                         integers({1, 0, -1, 1, 2}),
                         unwritten({rows, n}, GetParam()),
                         parts,
                         0.5f,
                         1,
                         workspace(lora_rows_workspace_bytes(rows, parts))};
    expect_same_bits<LoraRowsArgs>("lora_rows", args, &lora_rows_host, &lora_rows_async, {&LoraRowsArgs::y});
    expect_same_bits_in_place<LoraRowsArgs>("lora_rows", args, &lora_rows_host, &lora_rows_async,
                                            &LoraRowsArgs::base, &LoraRowsArgs::y);
  }
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceLoraTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
