#include <gtest/gtest.h>

#include <strata/chunk/types.h>

namespace strata {
namespace {

TEST(ResidencyTest, TransitionsAreLegalExactlyWhereTheTableSaysSo) {
  constexpr std::array<std::array<bool, 5>, 5> kLegal = {{
      // to:  absent filling clean  dirty  writing_back      from:
      {{false, true, false, true, false}},  // absent
      {{true, false, true, false, false}},  // filling
      {{true, false, false, true, false}},  // clean
      {{true, false, false, false, true}},  // dirty
      {{false, false, true, true, false}},  // writing_back
  }};
  for (std::size_t from = 0; from < 5; ++from)
    for (std::size_t to = 0; to < 5; ++to)
      EXPECT_EQ(is_valid_transition(static_cast<Residency>(from), static_cast<Residency>(to)),
                kLegal[from][to])
          << to_string(static_cast<Residency>(from)) << " -> " << to_string(static_cast<Residency>(to));
}

}  // namespace
}  // namespace strata
