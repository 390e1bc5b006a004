#include <strata/kernels/lora_rows.h>

#include <gmock/gmock.h>

#include <strata/dispatch/cuda/emulation/half_warp.h>

#include <strata/kernels/bf16_gemm.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/lora.h>

#include "cuda/gemm/lora_rows_math.h"
#include "gemm/gemm.h"
#include "kernels/adapters/lora_rows_problem.h"
#include "support/isas.h"

namespace strata::kernels {
namespace {

using test::RowAdapters;
using test::Tensor;

class LoraRowsTest : public ::testing::TestWithParam<DType> {
 protected:
  LoraRowsTest() { force_widened_bf16_gemm(true); }  // native bf16 sums in another order
  ~LoraRowsTest() override { force_widened_bf16_gemm(false); }
  /// 1.5 ulp of the stored dtype: y is rounded once.
  double tolerance() const {
    return GetParam() == DType::f32 ? 2e-6 : GetParam() == DType::f16 ? 1e-3 : 8e-3;
  }
};

TEST_P(LoraRowsTest, FollowsTheF64Reference) {
  for (const RowAdapters& problem : test::row_adapter_problems(GetParam())) {
    const std::vector<float> got = problem.run();
    EXPECT_LE(test::relative_error(got, problem.reference()), tolerance()) << problem.name;
    EXPECT_NE(got, problem.base_values()) << problem.name;
  }
}

// A batch of many adapters exists for this: each row is the row of the same batch under its adapter alone.
TEST_P(LoraRowsTest, ARowHasTheBitsOfTheBatchUnderItsAdapterAlone) {
  for (const RowAdapters& problem : test::row_adapter_problems(GetParam())) {
    const std::vector<float> mixed = problem.run();
    for (std::int32_t k = -1; k < static_cast<std::int32_t>(problem.adapters.size()); ++k) {
      const std::vector<float> alone = problem.run_alone(k);
      for (std::size_t t = 0; t < problem.numbers.size(); ++t)
        if (problem.numbers[t] == k) {
          EXPECT_EQ(test::differing_bits(problem.row(mixed, t), problem.row(alone, t)), 0u)
              << problem.name << ", row " << t;
        }
    }
  }
}

// What is trained is what is served: the ops of training, over any number of rows.
TEST_P(LoraRowsTest, ARowHasTheBitsOfTheOpsOfAnAdapterAlone) {
  if (!detail::sums_by_chains()) GTEST_SKIP() << "sums depend on the shape on this CPU";
  for (const RowAdapters& problem : test::row_adapter_problems(GetParam()))
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(problem.adapters.size()); ++k) {
      const RowAdapters::Adapter& adapter = problem.adapters[static_cast<std::size_t>(k)];
      Tensor x = problem.x, a = adapter.a, b = adapter.b, y = problem.base,
             u = Tensor::unwritten({problem.rows(), a.view().shape.dim(0)}, GetParam());
      linear_forward_host({x.view(), a.view(), {}, u.view()}, *test::pool());
      if (adapter.scale != 1) scale_host({u.view(), u.view(), adapter.scale}, *test::pool());
      lora_up_host({y.view(), u.view(), b.view(), y.view(), adapter.parts}, *test::pool());
      EXPECT_EQ(test::differing_bits(problem.run_alone(k), y.values()), 0u) << problem.name;
    }
}

TEST_P(LoraRowsTest, ARowAloneHasTheBitsOfTheRowInTheBatch) {
  for (const RowAdapters& problem : test::row_adapter_problems(GetParam())) {
    const std::vector<float> all = problem.run();
    for (std::size_t t = 0; t < problem.numbers.size(); ++t)
      EXPECT_EQ(test::differing_bits(problem.only_row(t).run(), problem.row(all, t)), 0u)
          << problem.name << ", row " << t;
  }
}

TEST_P(LoraRowsTest, BitsDoNotDependOnThreadsOrTheInstructionSet) {
  for (const RowAdapters& problem : test::row_adapter_problems(GetParam())) {
    const std::vector<float> want = problem.run(1);
    for (const simd::CpuIsa isa : test::supported_isas()) {
      const test::IsaScope scope(isa);
      EXPECT_EQ(test::differing_bits(problem.run(3), want), 0u) << problem.name;
    }
  }
}

TEST_P(LoraRowsTest, NotInPlaceTheBaseStaysAndTheResultIsTheSame) {
  for (const RowAdapters& problem : test::row_adapter_problems(GetParam())) {
    const test::RowAdapters::Adapter& adapter = problem.adapters.front();
    Tensor base = problem.base, x = problem.x, a = adapter.a, b = adapter.b;
    Tensor y = Tensor::unwritten(problem.base_shape(), GetParam());
    std::vector<std::int32_t> numbers = problem.numbers;
    test::Workspace workspace(lora_rows_workspace_bytes(problem.rows(), adapter.parts));
    LoraRowsArgs args = {base.view(), x.view(),      a.view(),      b.view(), test::view(numbers),
                         y.view(),    adapter.parts, adapter.scale, 0,        workspace.view()};
    lora_rows_host(args, *test::pool());
    EXPECT_EQ(test::differing_bits(base.values(), problem.base_values()), 0u);
    args.y = base.view();
    lora_rows_host(args, *test::pool());
    EXPECT_EQ(test::differing_bits(base.values(), y.values()), 0u) << problem.name;
  }
}

/// Runs what the kernels of lora_rows.cu do, one half warp after the other.
template <class T>
void run_on_half_warps(const LoraRowsArgs& a) {
  const dispatch::EmulatedHalfWarp lanes;
  detail::LoraRowsView<T> v = {.x = a.x.as<T>(),
                               .a = a.a.as<T>(),
                               .b = a.b.as<T>(),
                               .adapters = a.adapters.as<std::int32_t>(),
                               .y = a.y.as<T>(),
                               .u = reinterpret_cast<float*>(a.workspace.data),
                               .rows = a.base.shape.dim(0),
                               .columns = a.base.shape.dim(1),
                               .inner = a.x.shape.dim(1),
                               .ranks = a.a.shape.dim(0),
                               .scale = a.scale,
                               .adapter = a.adapter};
  for (std::int64_t i = 0; i < v.rows * v.ranks; ++i) detail::lora_down(lanes, v, i);
  for (const LoraPart& part : a.parts.all()) {
    v.first_row = part.first_row;
    v.part_rows = part.rows;
    v.rank = part.rank;
    for (std::int64_t i = 0; i < v.rows * part.rows; ++i) detail::lora_up_element(v, i);
    v.b += part.rows * part.rank;
    v.first_u += part.rank;
  }
}

TEST_P(LoraRowsTest, TheDevicesArithmeticHasTheBitsOfTheHosts) {
  for (const RowAdapters& problem : test::row_adapter_problems(GetParam())) {
    const std::vector<float> on_device = problem.run_with([&](const LoraRowsArgs& args) {
      if (GetParam() == DType::f32) run_on_half_warps<float>(args);
      if (GetParam() == DType::bf16) run_on_half_warps<bf16>(args);
      if (GetParam() == DType::f16) run_on_half_warps<f16>(args);
    });
    EXPECT_EQ(test::differing_bits(on_device, problem.run()), 0u) << problem.name;
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, LoraRowsTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(LoraRowsCheckTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor base({2, 8}, std::vector<float>(16)), x({2, 4}, std::vector<float>(8)),
      a({2, 4}, std::vector<float>(8)), b({8}, std::vector<float>(8));
  std::vector<std::int32_t> numbers = {0, -1}, three = {0, 0, 0};
  test::Workspace workspace(16);
  const LoraRowsArgs fits = {base.view(), x.view(),           a.view(), b.view(), test::view(numbers),
                             base.view(), {{{{4, 4, 2}}}, 1}, 1,        0,        workspace.view()};
  const auto message = [&](const auto& change) {
    LoraRowsArgs args = fits;
    change(args);
    return std::string(lora_rows_async(backend, stream, args).message());
  };
  EXPECT_EQ(message([](LoraRowsArgs&) {}), "ok");
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](LoraRowsArgs& c) { c.parts = {{{{5, 4, 2}}}, 1}; }), HasSubstr("rows 5 to 9 of 8"));
  EXPECT_THAT(message([](LoraRowsArgs& c) { c.parts = {{{{4, 4, 1}}}, 1}; }), HasSubstr("a is f32 [2, 4]"));
  EXPECT_THAT(message([](LoraRowsArgs& c) { c.parts = {{{{4, 3, 2}}}, 1}; }), HasSubstr("with 6 elements"));
  EXPECT_THAT(message([&](LoraRowsArgs& c) { c.adapters = test::view(three); }),
              HasSubstr("adapters is i32 [3]"));
  EXPECT_THAT(message([](LoraRowsArgs& c) { c.x = c.base; }), HasSubstr("a is f32 [2, 4]; it must be"));
  EXPECT_THAT(message([](LoraRowsArgs& c) { c.workspace.bytes = 12; }),
              HasSubstr("workspace has 12 bytes; it needs 16"));
}

}  // namespace
}  // namespace strata::kernels
