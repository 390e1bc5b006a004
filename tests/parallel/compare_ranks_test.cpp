// Ranks that do not have the same of something all learn of what, before they start.
#include <functional>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/parallel/compare_ranks.h>
#include <strata/runtime/str.h>

#include "parallel/ranks.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

class CompareRanksTest : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<RankFacet> facets() {
    std::vector<RankFacet> all = {{"empty thing", {}}, {"layout", {}}, {"list", {"one"}}};
    for (int i = 0; i < 1000; ++i) all[1].lines.push_back(str("chunk ", i));
    return all;
  }
  using Change = std::function<void(std::vector<RankFacet>&)>;
  /// The last rank has something else. Returns what this process's ranks say, which must be the same.
  Status compare(const Change& change) {
    Status outcome;
    Mutex mutex;
    bool first = true;
    ranks_->run_worlds([&](World& world) {
      std::vector<RankFacet> mine = facets();
      if (world.rank() == world.size() - 1) change(mine);
      const Status status = compare_ranks(world, mine);
      const MutexLock lock(mutex);
      if (first) outcome = status;
      EXPECT_EQ(status.to_string(), outcome.to_string());
      first = false;
    });
    return outcome;
  }
  std::unique_ptr<test::Ranks> ranks_ = test::make_ranks(GetParam(), StreamSchedule::threads);
};

TEST_P(CompareRanksTest, EqualRanksAreFine) {
  const Status outcome = compare([](auto&) {});
  EXPECT_TRUE(outcome.is_ok()) << outcome.to_string();
}

TEST_P(CompareRanksTest, TheFirstLineThatDiffersIsFound) {
  if (GetParam() == 1) return;  // there is nobody to differ from
  for (const std::size_t line : {0, 1, 499, 998, 999}) {
    const Status outcome = compare([&](auto& all) {
      for (std::size_t i = line; i < 1000; i += 7) all[1].lines[i] += " is another";
      all[2].lines[0] = "two";
    });
    EXPECT_EQ(outcome.code(), Code::invalid);
    EXPECT_THAT(std::string(outcome.message()),
                HasSubstr(str("ranks do not have the same layout: line ", line + 1, " is \"chunk ", line,
                              "\" on rank 0 of ", GetParam())));
    EXPECT_THAT(std::string(outcome.message()), HasSubstr(str("and \"chunk ", line, " is another\" on rank ",
                                                              GetParam() - 1, " of ", GetParam())));
  }
}

TEST_P(CompareRanksTest, AMissingAndAnAdditionalLineAreFound) {
  if (GetParam() == 1) return;  // there is nobody to differ from
  EXPECT_THAT(std::string(compare([](auto& all) { all[1].lines.pop_back(); }).message()),
              HasSubstr("line 1000 is \"chunk 999\""));
  EXPECT_THAT(std::string(compare([](auto& all) { all[1].lines.push_back("more"); }).message()),
              HasSubstr("line 1001 is \"nothing\""));
  EXPECT_THAT(std::string(compare([](auto& all) { all[0].lines.push_back("more"); }).message()),
              HasSubstr("the same empty thing: line 1 is \"nothing\""));
}

TEST_P(CompareRanksTest, OnlyRanksOfOneGroupAreCompared) {
  if (GetParam() < 3) return;
  std::vector<Status> outcomes;
  for (const bool last_differs : {false, true}) {
    Mutex mutex;
    ranks_->run_worlds([&](World& world) {
      std::vector<RankFacet> mine = facets();
      mine[1].group = world.rank() % 2;
      mine[1].lines[7] += str(" of group ", mine[1].group);
      if (last_differs && world.rank() == 2) mine[1].lines[7] += ", another";
      const Status status = compare_ranks(world, mine);
      const MutexLock lock(mutex);
      outcomes.push_back(status);
    });
    for (const Status& status : outcomes) {
      EXPECT_EQ(status.is_ok(), !last_differs) << status.to_string();
      if (last_differs) {
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr(str("line 8 is \"chunk 7 of group 0\" on rank 0 of ", GetParam())));
      }
    }
    outcomes.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CompareRanksTest, ::testing::ValuesIn(test::rank_counts()));

TEST(BuildIdTest, TheLinkerHasComputedOne) {
  EXPECT_EQ(build_id().size(), 40U);
  EXPECT_EQ(build_id().find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace strata
