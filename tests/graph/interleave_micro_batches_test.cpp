#include <map>
#include <set>

#include <gtest/gtest.h>

#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using test::decoder_program;
using test::make_decoder_config;

class InterleaveMicroBatchesTest : public ::testing::TestWithParam<Recompute> {
 protected:
  static constexpr std::int32_t kBatches = 3;
  const Program before = decoder_program(make_decoder_config(3, 8), 2, GetParam());
  const Program after = interleave_micro_batches(before, kBatches);
};

TEST_P(InterleaveMicroBatchesTest, IsAProgramOfAllMicroBatches) {
  must(verify(after));
  EXPECT_EQ(after.micro_batches, kBatches);
  EXPECT_EQ(after.inputs.size(), kBatches * before.inputs.size());
  EXPECT_EQ(after.outputs.size(), kBatches * before.outputs.size());
  for (std::int32_t k = 0; k < kBatches; ++k)
    for (const char* name : {"tokens", "targets", "loss"})
      EXPECT_NE(after.find(name_in_micro_batch(name, k)), kNoValue) << name << " of " << k;
}

// Each micro-batch has its own values, except for tables that are the same in all.
TEST_P(InterleaveMicroBatchesTest, EveryMicroBatchHasTheInstructionsOfOne) {
  std::map<Op, int> want, got;
  for (const Instr& instr : before.code) {
    const bool reads =
        std::any_of(instr.in.begin(), instr.in.end(), [](ValueId id) { return id != kNoValue; });
    want[instr.op] += reads ? kBatches : 1;
  }
  want[Op::accumulate] = kBatches * static_cast<int>(before.params.size());
  for (const Instr& instr : after.code) ++got[instr.op];
  EXPECT_EQ(got, want);
}

// A parameter is read in one segment of forward and one of backward, however many micro-batches there are.
TEST_P(InterleaveMicroBatchesTest, ARegionRunsForAllMicroBatchesBeforeTheNextBegins) {
  std::set<std::pair<std::int32_t, bool>> done;
  for (std::size_t i = 1; i < after.code.size(); ++i) {
    const std::pair last{after.code[i - 1].region, after.code[i - 1].backward},
        now{after.code[i].region, after.code[i].backward};
    if (now == last) continue;
    done.insert(last);
    EXPECT_FALSE(done.contains(now)) << "instruction " << i << " goes back to region " << now.first;
  }
}

// The gradients of the micro-batches are added in their order; the first one is written.
TEST_P(InterleaveMicroBatchesTest, GradientsAreSumsInOrder) {
  std::map<ValueId, std::vector<std::string>> parts;
  for (const Instr& instr : after.code) {
    if (instr.op != Op::accumulate) {
      for (const ValueId id : instr.out) EXPECT_NE(after.value(id).kind, ValueKind::grad);
      continue;
    }
    EXPECT_EQ(instr.accumulate, parts[instr.out[0]].empty() ? 0u : 1u);
    parts[instr.out[0]].push_back(after.value(instr.in[0]).name);
  }
  for (const ParamInfo& param : after.params) {
    EXPECT_EQ(after.value(param.grad).dtype, DType::f32);
    std::vector<std::string> want;
    for (std::int32_t k = 0; k < kBatches; ++k)
      want.push_back(name_in_micro_batch("micro-batch d(" + param.name + ")", k));
    EXPECT_EQ(parts[param.grad], want) << param.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, InterleaveMicroBatchesTest, ::testing::ValuesIn(kRecomputeModes),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(InterleaveMicroBatchesTest, OneMicroBatchChangesNothing) {
  const Program before = decoder_program(make_decoder_config(2, 8), 2);
  EXPECT_EQ(to_string(interleave_micro_batches(before, 1)), to_string(before));
}

}  // namespace
}  // namespace strata
