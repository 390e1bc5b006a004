// Compares GEMMs with a quantized matrix on the GPU with the host's (see device_ops_test.cpp).

#include <gtest/gtest.h>

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
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::nf4_dq})
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

INSTANTIATE_TEST_SUITE_P(Stored, DeviceQuantizedTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace strata::kernels
