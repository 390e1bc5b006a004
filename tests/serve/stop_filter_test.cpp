#include <strata/serve/stop_filter.h>

#include <gtest/gtest.h>

#include <strata/runtime/rng.h>

namespace strata {
namespace {

/// The text before the stop, for pieces of at most `n` bytes.
std::string filtered(const std::vector<std::string>& stops, const std::string& text, std::size_t n) {
  StopFilter filter(stops);
  std::string out;
  for (std::size_t at = 0; at < text.size() && !filter.stopped(); at += n)
    out += filter.push(text.substr(at, n));
  return out + filter.finish();
}

TEST(StopFilterTest, AStopThatSpansPiecesEndsTheTextAndIsNoPartOfIt) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.push("one E"), "one ");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("D two"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("three"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopFilterTest, WhatOnlyLooksLikeAStopIsReturned) {
  StopFilter filter({"END", "\n\n"});
  EXPECT_EQ(filter.push("ENEN"), "EN");
  EXPECT_EQ(filter.push("E\n"), "ENE");
  EXPECT_EQ(filter.push("x"), "\nx");
  EXPECT_EQ(filter.push("E"), "");
  EXPECT_EQ(filter.finish(), "E");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilterTest, WithoutStopsNothingIsHeldBack) {
  StopFilter filter({});
  EXPECT_EQ(filter.push("any \n text"), "any \n text");
}

TEST(StopFilterTest, TheStopThatIsCompleteFirstCountsHoweverTheTextIsCut) {
  for (std::size_t n = 1; n < 9; ++n) {
    EXPECT_EQ(filtered({"abcd", "bc"}, "xxabcdyy", n), "xxa") << n;
    EXPECT_EQ(filtered({"cd", "abcd"}, "xxabcdyy", n), "xx") << n << ": the longer of two that end there";
    EXPECT_EQ(filtered({"aab"}, "aaaab", n), "aa") << n;
  }
}

TEST(StopFilterTest, AnyCutOfARandomTextGivesTheSame) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Rng rng(seed, 1);
    std::string text;
    for (std::uint64_t i = 0; i < 40; ++i) text += "abc"[rng.below(i, 3)];
    std::vector<std::string> stops;
    for (std::uint64_t i = 0; i < 3; ++i) {
      std::string stop;
      for (std::uint64_t k = 0; k <= rng.below(100 + i, 5); ++k)
        stop += "abc"[rng.below(200 + 10 * i + k, 3)];
      stops.push_back(stop);
    }
    const std::string whole = filtered(stops, text, text.size());
    for (const std::size_t n : {1, 2, 3, 7}) EXPECT_EQ(filtered(stops, text, n), whole) << "seed " << seed;
    for (const std::string& stop : stops) EXPECT_EQ(whole.find(stop), std::string::npos) << "seed " << seed;
  }
}

}  // namespace
}  // namespace strata
