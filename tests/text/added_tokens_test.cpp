#include "tokenizer/added_tokens.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using detail::AddedTokenMatcher;
using testing::ElementsAre;

std::vector<std::string> matches(const AddedTokenMatcher& matcher, const std::string& text) {
  std::vector<std::string> out;
  for (auto m = matcher.next(text, 0); m.begin < text.size(); m = matcher.next(text, m.end))
    out.push_back(text.substr(m.begin, m.end - m.begin));
  return out;
}

TEST(AddedTokenMatcherTest, TheLongestOfTheLeftmostMatchesWins) {
  const AddedTokenMatcher matcher({{"ab", 0}, {"abcd", 1}, {"a", 2}, {"bcde", 3}, {"\xff", 4}});
  EXPECT_THAT(matches(matcher, "abcde"), ElementsAre("abcd"));
  EXPECT_THAT(matches(matcher, "abc abcx aab\xff"), ElementsAre("ab", "ab", "a", "ab", "\xff"));
  EXPECT_THAT(matches(matcher, "bcdxbcde"), ElementsAre("bcde"));
  EXPECT_THAT(matches(matcher, ""), ElementsAre());
}

TEST(AddedTokenMatcherTest, TheFirstOfEqualContentsWins) {
  const AddedTokenMatcher matcher({{"x", 7}, {"x", 3}});
  EXPECT_EQ(matcher.next("x", 0).index, 7u);
}

/// The parts of a text, with added tokens written as "[token]".
std::string parts(const std::string& text, const std::vector<AddedToken>& added) {
  std::vector<AddedTokenMatcher::Entry> entries;
  for (std::uint32_t i = 0; i < added.size(); ++i) entries.push_back({added[i].content, i});
  std::string out;
  detail::for_each_part(
      text, AddedTokenMatcher(entries), added,
      [](const AddedToken& token, std::size_t, std::size_t) { return !token.special; },
      [&](std::string_view part) { out += part; },
      [&](const AddedToken& token, std::size_t, std::size_t) { out += "[" + token.content + "]"; });
  return out;
}
AddedToken token(const std::string& content) { return {.id = 0, .content = content, .special = false}; }

TEST(AddedTokensTest, StrippingTakesWhiteSpaceOfAnyKind) {
  AddedToken left = token("<l>");
  left.lstrip = true;
  AddedToken right = token("<r>");
  right.rstrip = true;
  EXPECT_EQ(parts("a \u3000\n<l> b <r> \u00a0c", {left, right}), "a[<l>] b [<r>]c");
  EXPECT_EQ(parts("<r>  <l>  <l>", {left, right}), "[<r>][<l>][<l>]");
}

TEST(AddedTokensTest, ASingleWordTokenIsNotAdjacentToAnotherWord) {
  AddedToken word = token("in");
  word.single_word = true;
  EXPECT_EQ(parts("in inn _in in_ \u00e9in in\u0301 (in) \u65e5in in", {word}),
            "[in] inn _in in_ \u00e9in in\u0301 ([in]) \u65e5in [in]");
}

TEST(AddedTokensTest, AnIgnoredSpecialTokenHidesAShorterOneInside) {
  AddedToken special = token("<sop>");
  special.special = true;
  EXPECT_EQ(parts("<sop> <sop", {special, token("<sop")}), "<sop> [<sop]");
}

TEST(AddedTokensTest, ATokenOfSpacesThatStripsTakesLinearTime) {
  AddedToken space = token(" ");
  space.lstrip = space.rstrip = true;
  const std::string text(1 << 20, ' ');
  EXPECT_EQ(parts(text, {space}).size(), 3 * text.size());
}

}  // namespace
}  // namespace strata
