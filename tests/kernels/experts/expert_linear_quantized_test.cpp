#include <strata/kernels/experts/expert_linear_quantized.h>

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>

#include <strata/kernels/experts/expert_linear.h>
#include <strata/kernels/weight_quant.h>

#include "cuda/quant/weight_math.h"
#include "experts/quantized_experts.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

/// The experts of a layer in a format, and their dequantized matrices.
struct QuantizedExperts {
  QuantizedExperts(const QuantizedMatrix& m, DType dtype) : matrix(m), bytes(count_of(m.bytes() + 64)) {
    const std::vector<float> drawn = Values(6).floats(m.n_elems(), 0.05);
    quantize_matrix(m, drawn, held(), *test::pool(2));
    std::vector<float> values(drawn.size());
    dequantize_matrix(m, held(), 0, values);
    w = Tensor({m.count, m.rows(), m.columns}, values, dtype);
  }
  static std::size_t count_of(std::int64_t n) { return static_cast<std::size_t>(n); }
  std::span<std::byte> held() {  // 64-aligned
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
    return std::span(bytes).subspan((64 - at % 64) % 64).first(count_of(matrix.bytes()));
  }
  /// The bytes of experts [first, first + count).
  TensorView view(std::int64_t first, std::int64_t count) {
    return {held().data() + first * matrix.matrix_bytes(), {count * matrix.matrix_bytes()}, DType::u8};
  }
  QuantizedMatrix part(std::int64_t count) const {
    QuantizedMatrix some = matrix;
    some.count = count;
    return some;
  }

  QuantizedMatrix matrix;
  std::vector<std::byte> bytes;
  Tensor w{{1}, {0}};

 private:
  QuantizedExperts(const QuantizedExperts&) = delete;
};

struct Case {
  QuantizedMatrix matrix;
  std::vector<std::int32_t> offsets;
};

// Experts without rows, with one, and with more than a panel; matrices of two parts, and of one.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const WeightFormat format : kQuantizedFormats) {
    all.push_back({{format, 75, {20, 20}, 5}, {0, 3, 3, 74, 75, 140}});
    all.push_back({{format, 160, {130}, 3, QuantizedMatrix::kExpertAlign}, {0, 0, 9, 9}});
  }
  return all;
}

class ExpertLinearQuantizedTest : public ::testing::TestWithParam<DType> {};

TEST_P(ExpertLinearQuantizedTest, HasTheBitsOfExpertsWithTheDequantizedMatrices) {
  const DType dtype = GetParam();
  for (auto& [matrix, offsets] : cases()) {
    QuantizedExperts experts(matrix, dtype);
    const std::int64_t n = matrix.rows(), k = matrix.columns, rows = offsets.back();
    Tensor x({rows, k}, Values(1).floats(rows * k), dtype), dy({rows, n}, Values(2).floats(rows * n), dtype),
        b({matrix.count, n}, Values(3).floats(matrix.count * n), dtype);
    Tensor want_y = Tensor::unwritten({rows, n}, dtype), want_dx = Tensor::unwritten({rows, k}, dtype);
    std::vector<std::int32_t> at = offsets;
    test::Workspace tail(1 << 17);
    const auto pool = test::pool(2);
    expert_linear_forward_host(
        {x.view(), experts.w.view(), b.view(), test::view(at), want_y.view(), 0, tail.view()}, *pool);
    expert_linear_backward_input_host(
        {dy.view(), experts.w.view(), test::view(at), want_dx.view(), 0, tail.view()}, *pool);
    for (const std::int64_t of_block : {matrix.count, std::int64_t{2}}) {
      Tensor y = Tensor::unwritten({rows, n}, dtype), dx = Tensor::unwritten({rows, k}, dtype);
      for (std::int64_t first = 0; first < matrix.count; first += of_block) {
        const QuantizedMatrix some = experts.part(std::min(of_block, matrix.count - first));
        test::Workspace space(expert_linear_quantized_workspace_bytes(some, dtype));
        TensorView bias = b.view();
        bias.data += first * n * static_cast<std::int64_t>(size_of(dtype));
        bias.shape.dims[0] = some.count;
        const TensorView w = experts.view(first, some.count);
        expert_linear_quantized_host({x.view(), w, bias, test::view(at), y.view(), first, space.view(), some},
                                     *pool);
        expert_linear_quantized_backward_input_host(
            {dy.view(), w, test::view(at), dx.view(), first, space.view(), some}, *pool);
      }
      EXPECT_EQ(test::differing_bits(y.values(), want_y.values()), 0u) << to_string(matrix.format);
      EXPECT_EQ(test::differing_bits(dx.values(), want_dx.values()), 0u) << to_string(matrix.format);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(DTypes, ExpertLinearQuantizedTest,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// Two experts of six million values are dequantized together, and the third by itself.
TEST(ExpertLinearQuantizedGroupsTest, GroupsOfExpertsMakeUpTheWholeResult) {
  const QuantizedMatrix matrix = {WeightFormat::mxfp4, 3200, {1000, 1000}, 3};
  ASSERT_EQ(detail::experts_at_once(matrix), 2);
  QuantizedExperts experts(matrix, DType::bf16);
  std::vector<std::int32_t> offsets = {0, 1, 2, 4};
  Tensor x({4, 3200}, Values(1).floats(4 * 3200), DType::bf16), y = Tensor::unwritten({4, 2000}, DType::bf16),
                                                                want = y;
  test::Workspace space(expert_linear_quantized_workspace_bytes(matrix, DType::bf16)), tail(1 << 20);
  expert_linear_quantized_host(
      {x.view(), experts.view(0, 3), {}, test::view(offsets), y.view(), 0, space.view(), matrix},
      *test::pool(2));
  expert_linear_forward_host(
      {x.view(), experts.w.view(), {}, test::view(offsets), want.view(), 0, tail.view()}, *test::pool(2));
  EXPECT_EQ(test::differing_bits(y.values(), want.values()), 0u);
}

// The memory of an expert without rows keeps what it had.
TEST(ExpertLinearQuantizedGroupsTest, AnExpertWithoutRowsIsNotDequantized) {
  const QuantizedMatrix matrix = {WeightFormat::nf4, 64, {8}, 3};
  QuantizedExperts experts(matrix, DType::f32);
  std::vector<std::int32_t> offsets = {0, 2, 2, 5};
  Tensor x({5, 64}, Values(1).floats(5 * 64)), y = Tensor::unwritten({5, 8});
  test::Workspace space(expert_linear_quantized_workspace_bytes(matrix, DType::f32));
  const BufferView panel = space.view();
  std::memset(panel.data, 0xCB, panel.bytes);
  expert_linear_quantized_host(
      {x.view(), experts.view(0, 3), {}, test::view(offsets), y.view(), 0, panel, matrix}, *test::pool(1));
  const std::size_t of_expert = 8 * 64 * sizeof(float);
  for (std::size_t e = 0; e < 3; ++e) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < of_expert; ++i)
      kept += panel.data[e * of_expert + i] == std::byte{0xCB} ? 1 : 0;
    EXPECT_EQ(kept == of_expert, e == 1) << e;
  }
}

// The device finds an expert's sections behind those of the first one.
TEST(ExpertLinearQuantizedGroupsTest, TheDevicesPartOfAnExpertIsItsMatrix) {
  for (const WeightFormat format : kQuantizedFormats) {
    const QuantizedMatrix matrix = {format, 75, {20, 9}, 3};
    QuantizedExperts experts(matrix, DType::f32);
    const std::vector<float> want = experts.w.values();
    for (std::size_t p = 0; p < 2; ++p) {
      const QuantizedPart part = matrix.part(p);
      const detail::PartData first = detail::data_of(matrix, part, experts.held().data()),
                             third = detail::part_behind(first, 2 * matrix.matrix_bytes());
      const detail::CodeLevels levels = detail::code_levels(first.value_type);
      std::vector<float> row(75);
      detail::dequantize_values(third, detail::place_of(third, 7, 0), 75, levels.of, row.data());
      EXPECT_TRUE(std::equal(row.begin(), row.end(), want.begin() + 2 * 29 * 75 + (part.first_row + 7) * 75))
          << to_string(format);
    }
  }
}

TEST(ExpertLinearQuantizedGroupsTest, InconsistentArgumentsAreRefusedWithBothNumbers) {
  using ::testing::HasSubstr;
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  const QuantizedMatrix matrix = {WeightFormat::nf4, 64, {8}, 2};
  QuantizedExperts experts(matrix, DType::f32);
  std::vector<std::int32_t> offsets = {0, 1, 3, 4};
  Tensor x({4, 64}, std::vector<float>(256)), y({4, 8}, std::vector<float>(32));
  test::Workspace space(expert_linear_quantized_workspace_bytes(matrix, DType::f32));
  const auto message = [&](const auto& change) {
    ExpertLinearQuantizedArgs args = {x.view(), experts.view(0, 2), {},    test::view(offsets), y.view(),
                                      1,        space.view(),       matrix};
    change(args);
    return std::string(expert_linear_quantized_async(backend, stream, args).message());
  };
  using Args = ExpertLinearQuantizedArgs;
  EXPECT_EQ(message([](Args&) {}), "ok");
  EXPECT_THAT(message([](Args& c) { c.first = 2; }), HasSubstr("w has the experts 2 to 4 of 3"));
  EXPECT_THAT(message([](Args& c) { c.matrix.count = 1; }), HasSubstr("w is u8 [640]; it must be u8 [320]"));
  EXPECT_THAT(message([](Args& c) { c.matrix.format = WeightFormat::full; }),
              HasSubstr("the matrices are not quantized, or empty"));
  EXPECT_THAT(message([](Args& c) { c.workspace.bytes = 100; }),
              HasSubstr("workspace has 100 bytes; it needs"));
  EXPECT_THAT(message([&](Args& c) { c.b = y.view(); }), HasSubstr("b is f32 [4, 8]; it must be f32 [2, 8]"));
  EXPECT_THAT(
      std::string(expert_linear_quantized_backward_input_async(
                      backend, stream,
                      {y.view(), experts.view(0, 2), test::view(offsets), y.view(), 0, space.view(), matrix})
                      .message()),
      HasSubstr("dx is f32 [4, 8]; it must be f32, 4 rows of 64"));
}

}  // namespace
}  // namespace strata::kernels
