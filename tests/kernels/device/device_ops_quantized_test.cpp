// Compares GEMMs with a quantized matrix on the GPU with the host's (see device_ops_test.cpp).

#include <gtest/gtest.h>

#include <strata/kernels/experts/expert_linear_quantized.h>
#include <strata/kernels/linear_quantized.h>
#include <strata/kernels/weight_quant.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

class DeviceQuantizedTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }
  TensorView quantized(const QuantizedMatrix& matrix) {
    const TensorView bytes = unwritten({matrix.bytes()}, DType::u8);
    quantize_matrix(matrix, test::Values(7).floats(matrix.n_elems(), 0.02), {bytes.data, bytes.bytes()},
                    *pool_);
    return bytes;
  }
};

// One and three parts, whole blocks in a row and not; the largest has two panels.
TEST_P(DeviceQuantizedTest, LinearIsCloseToTheHosts) {
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : GetParam() == DType::f16 ? 2e-3 : 1e-2;
  for (const WeightFormat format : kQuantizedFormats)
    for (const auto& [columns, rows_of] :
         {std::pair{192, std::array<std::int64_t, 3>{300, 0, 0}}, {75, {40, 24, 8}}, {4100, {4200, 0, 0}}}) {
      const QuantizedMatrix matrix = {format, columns, rows_of};
      constexpr std::int64_t rows = 70;
      const TensorView w = quantized(matrix), x = in({rows, matrix.columns}, 1),
                       dy = in({rows, matrix.rows()}, 2), bias = in({matrix.rows()}, 3);
      const BufferView panel = workspace(linear_quantized_workspace_bytes(matrix, GetParam()));
      expect_close<LinearQuantizedArgs>(
          "linear_quantized", {x, w, bias, unwritten({rows, matrix.rows()}, GetParam()), panel, {}, matrix},
          &linear_quantized_host, &linear_quantized_async, &LinearQuantizedArgs::y, tolerance);
      expect_close<LinearQuantizedBackwardInputArgs>(
          "linear_quantized's dx",
          {dy, w, unwritten({rows, matrix.columns}, GetParam()), false, panel, {}, matrix},
          &linear_quantized_backward_input_host, &linear_quantized_backward_input_async,
          &LinearQuantizedBackwardInputArgs::dx, tolerance);
    }
}

// Twelve experts, some of them without rows, and a block of them; extents with vector loads, and without.
TEST_P(DeviceQuantizedTest, ExpertsAreCloseToTheHosts) {
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : GetParam() == DType::f16 ? 2e-3 : 1e-2;
  const TensorView offsets = integers({0, 0, 5, 205, 205, 206, 300, 428, 428, 428, 500, 511, 512});
  for (const WeightFormat format : kQuantizedFormats)
    for (const auto& [columns, half] : {std::pair<std::int64_t, std::int64_t>{192, 136}, {75, 40}})
      for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 12}, {3, 5}}) {
        const QuantizedMatrix matrix = {format, columns, {half, half}, count};
        constexpr std::int64_t rows = 512;
        const TensorView w = quantized(matrix), x = in({rows, columns}, 1), dy = in({rows, 2 * half}, 2),
                         bias = in({count, 2 * half}, 3), y = in({rows, 2 * half}, 4),
                         dx = in({rows, columns}, 5);
        const BufferView space = workspace(expert_linear_quantized_workspace_bytes(matrix, GetParam()));
        expect_close<ExpertLinearQuantizedArgs>("expert_linear_quantized",
                                                {x, w, bias, offsets, y, first, space, matrix},
                                                &expert_linear_quantized_host, &expert_linear_quantized_async,
                                                &ExpertLinearQuantizedArgs::y, tolerance);
        expect_close<ExpertLinearQuantizedBackwardInputArgs>(
            "expert_linear_quantized's dx", {dy, w, offsets, dx, first, space, matrix},
            &expert_linear_quantized_backward_input_host, &expert_linear_quantized_backward_input_async,
            &ExpertLinearQuantizedBackwardInputArgs::dx, tolerance);
      }
}

INSTANTIATE_TEST_SUITE_P(Stored, DeviceQuantizedTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
