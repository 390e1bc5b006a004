#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>

#include <strata/cpuopt/math/element.h>

#include "optimizer_cases.h"
#include "support/isas.h"

// Every optimizer, layout and format gives the same bits on every instruction set, in any split, at any
// address, and element by element as on a GPU. STRATA_BITS_ELEMS and STRATA_BITS_STEPS can make this a long
// test.
namespace strata::cpuopt::test {
namespace {

std::int64_t from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}
std::int64_t elems() { return from_environment("STRATA_BITS_ELEMS", 2 * 4096 + 4096 / 2 + 77); }
std::int64_t steps() { return from_environment("STRATA_BITS_STEPS", 3); }

// Gradients over many decades, with zeros, subnormals, very large values and (unless `finite`) infinities and
// NaNs among them.
std::vector<float> gradient(std::int64_t n, std::int64_t step, bool finite = false) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float odd[] = {0.0f,   -0.0f,  1e-42f, -1e-45f, 3e38f,
                       -3e38f, 1e-20f, kInf,   -kInf,   std::numeric_limits<float>::quiet_NaN()};
  Values values(100 + static_cast<std::uint64_t>(step));
  std::vector<float> g(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double decade = std::pow(10.0, -8.0 * (static_cast<double>(i % 97) / 97.0));
    g[i] = static_cast<float>(values.next() * decade);
    // NaN and infinity occur in only one block of moments, so that the other blocks stay finite.
    if (i % 53 == 7) g[i] = odd[i / 53 % (finite || i < 4096 || i >= 4352 ? 7 : 10)];
  }
  return g;
}

struct StateStorage {
  MasterLayout layout;
  StateFormat states;
};
std::vector<StateStorage> storage_combinations(std::initializer_list<StateFormat> formats) {
  std::vector<StateStorage> all;
  for (const MasterLayout layout :
       {MasterLayout::f32, MasterLayout::bf16_split, MasterLayout::bf16_shadow, MasterLayout::f16_shadow})
    for (const StateFormat states : formats) all.push_back({layout, states});
  return all;
}
std::vector<StateStorage> storage_combinations() {
  return storage_combinations({StateFormat::fp32, StateFormat::bf16, StateFormat::int8});
}
std::string describe(const StateStorage& stored) {
  constexpr const char* kLayouts[] = {"f32", "bf16_split", "bf16_shadow", "f16_shadow"};
  return str(kLayouts[static_cast<std::size_t>(stored.layout)], ", states in ", to_string(stored.states));
}

class OptimizerBits : public ::testing::TestWithParam<OptimizerParams> {
 protected:
  StoredTensor start(const StateStorage& stored, std::size_t skew = 0) const {
    return StoredTensor(GetParam(), stored.layout, stored.states, Values(1).floats(elems()), skew);
  }
  void run(StoredTensor& tensor, DType grad, std::int64_t part) const {
    for (std::int64_t step = 1; step <= steps(); ++step)
      tensor.step(step, gradient(elems(), step), grad, part);
  }
};

TEST_P(OptimizerBits, MatchTheScalarKernelOnEveryInstructionSetInAnySplitAndAtAnyAddress) {
  for (const StateStorage& stored : storage_combinations())
    for (const DType grad : {DType::f32, DType::bf16, DType::f16}) {
      StoredTensor scalar = start(stored);
      {
        const IsaScope isa(CpuIsa::scalar);
        run(scalar, grad, elems());
      }
      for (const CpuIsa name : supported_isas()) {
        if (name == CpuIsa::scalar) continue;
        const IsaScope isa(name);
        StoredTensor other = start(stored, name == CpuIsa::sse42 ? 0 : 1);
        run(other, grad, 4096);
        EXPECT_EQ(other.differing_bits_from(scalar), 0u)
            << describe(stored) << ", " << to_string(name) << ", gradient " << to_string(grad);
      }
    }
}

template <class Rule, MasterLayout kLayout>
void step_elements(const UpdateStep& step, StoredTensor& tensor, std::span<const float> g) {
  const UpdateBlock b = tensor.block();
  auto* m = static_cast<float*>(b.m.values);
  auto* v = static_cast<float*>(b.v.values);
  for (std::size_t i = 0; i < g.size(); ++i) {
    float unused = 0;
    update_at<Rule, kLayout>(step.scalars, b.param, b.master, m ? m[i] : unused, v ? v[i] : unused, g[i],
                             static_cast<std::int64_t>(i));
  }
}
template <class Rule>
void step_elements(MasterLayout layout, const UpdateStep& step, StoredTensor& tensor,
                   std::span<const float> g) {
  switch (layout) {
    case MasterLayout::f32:
      return step_elements<Rule, MasterLayout::f32>(step, tensor, g);
    case MasterLayout::bf16_split:
      return step_elements<Rule, MasterLayout::bf16_split>(step, tensor, g);
    case MasterLayout::bf16_shadow:
      return step_elements<Rule, MasterLayout::bf16_shadow>(step, tensor, g);
    case MasterLayout::f16_shadow:
      return step_elements<Rule, MasterLayout::f16_shadow>(step, tensor, g);
  }
}
template <class... Rules>
void step_elements(RuleList<Rules...>, MasterLayout layout, const UpdateStep& step, StoredTensor& tensor,
                   std::span<const float> g) {
  int at = 0;
  ((at++ == step.rule ? step_elements<Rules>(layout, step, tensor, g) : void()), ...);
}

// moments_test.cpp tests the element functions that store moments. For lamb only the first pass has an
// element function.
TEST_P(OptimizerBits, MatchTheElementFunctionsThatAGpuRuns) {
  for (const StateStorage& stored : storage_combinations({StateFormat::fp32})) {
    StoredTensor blocks = start(stored), elements = start(stored);
    for (OptimizerParams p = GetParam(); p.step <= steps(); ++p.step) {
      const std::vector<float> g = gradient(elems(), p.step);
      if (p.optimizer == Optimizer::lamb)
        blocks.lamb_moments(p.step, g);
      else
        blocks.step(p.step, g, DType::f32, elems());
      step_elements(UpdateRules(), stored.layout, make_update_step(p), elements, g);
    }
    EXPECT_EQ(elements.differing_bits_from(blocks), 0u) << describe(stored);
  }
}

// Layouts differ in how masters are stored and not in the arithmetic, which is f32, so every layout has the
// same masters.
TEST_P(OptimizerBits, MastersDoNotDependOnTheLayout) {
  for (const StateStorage& stored : storage_combinations()) {
    StoredTensor plain = start({MasterLayout::f32, stored.states}), other = start(stored);
    for (std::int64_t step = 1; step <= steps(); ++step)
      for (StoredTensor* tensor : {&plain, &other})
        tensor->step(step, gradient(elems(), step, true), DType::bf16, elems());
    EXPECT_EQ(differing_bits(other.masters(), plain.masters()), 0u) << describe(stored);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerBits, ::testing::ValuesIn(every_optimizer()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace strata::cpuopt::test
