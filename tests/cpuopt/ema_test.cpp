#include <strata/cpuopt/update.h>

#include <gtest/gtest.h>

#include <strata/runtime/convert.h>

#include "support/isas.h"
#include "support/numeric.h"

namespace strata::cpuopt {
namespace {

/// Masters in one layout, and their moving average from `offset` on.
struct Averaged {
  Averaged(MasterLayout layout, const std::vector<float>& masters, const std::vector<float>& average)
      : n(std::ssize(masters)), ema(average) {
    param.resize(masters.size() * param_bytes(layout));
    master.resize(masters.size() * master_bytes(layout));
    split_masters(masters, layout, param.data(), master.data());
    block = {.layout = layout, .param = param.data(), .master = master.data(), .ema = ema.data()};
  }
  std::int64_t n;
  std::vector<std::byte> param, master;
  std::vector<float> ema;
  UpdateBlock block;
};

class EmaTest : public ::testing::TestWithParam<MasterLayout> {
 protected:
  static constexpr std::int64_t kElems = 4096 + 37;
  const std::vector<float> masters = test::Values(1).floats(kElems), before = test::Values(2).floats(kElems);
};

TEST_P(EmaTest, MovesByItsWeightTowardsTheMastersOnEveryInstructionSet) {
  std::vector<float> want = before;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const float difference = masters[i] - want[i], part = 0.1f * difference;
    want[i] = want[i] + part;
  }
  for (const CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    Averaged got(GetParam(), masters, before);
    update_ema_block(0.1f, got.block, 4096);
    update_ema_block(0.1f, got.block.at(4096), got.n - 4096);
    EXPECT_EQ(test::differing_bits(got.ema, want), 0u) << to_string(name);
  }
}

TEST_P(EmaTest, OfWeightOneIsTheMastersWhateverWasThere) {
  std::vector<float> other(before);
  other[5] = std::numeric_limits<float>::quiet_NaN();
  Averaged got(GetParam(), masters, other);
  update_ema_block(1, got.block, got.n);
  EXPECT_EQ(test::differing_bits(got.ema, masters), 0u);
}

TEST_P(EmaTest, ChangesNoMaster) {
  Averaged got(GetParam(), masters, before);
  const Averaged untouched(GetParam(), masters, before);
  update_ema_block(0.5f, got.block, got.n);
  EXPECT_EQ(got.param, untouched.param);
  EXPECT_EQ(got.master, untouched.master);
}

INSTANTIATE_TEST_SUITE_P(Layouts, EmaTest,
                         ::testing::Values(MasterLayout::f32, MasterLayout::bf16_split,
                                           MasterLayout::bf16_shadow, MasterLayout::f16_shadow));

TEST(EmaDecayTest, IsFromZeroToBelowOneInF32) {
  for (const double decay : {-0.1, 1.0, 0.99999999999}) {
    const Status refused = validate({.ema_decay = decay});
    EXPECT_EQ(refused.code(), Code::invalid) << decay;
    EXPECT_NE(refused.message().find("ema_decay"), std::string::npos);
  }
  EXPECT_TRUE(validate({.ema_decay = 0.9999}).is_ok());
  EXPECT_EQ(make_update_step({.ema_decay = 0.75}).ema_weight, 0.25f);
}

}  // namespace
}  // namespace strata::cpuopt
