#include "tokenizer/pretokenizer.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <support/corpus.h>

namespace strata {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces_of(std::string_view text, SplitRule rule = SplitRule::gpt2) {
  std::vector<std::string> out;
  detail::PreTokenizer splitter(text, rule);
  for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next())
    out.emplace_back(piece);
  return out;
}

TEST(PreTokenizerTest, WordsIncludeTheSpaceBeforeThem) {
  EXPECT_THAT(pieces_of("Hello world, it is 1813!"),
              ElementsAre("Hello", " world", ",", " it", " is", " 1813", "!"));
}

TEST(PreTokenizerTest, ContractionsAreSeparate) {
  EXPECT_THAT(pieces_of("I'll we've don't he'd O'Brien 'tis'S"),
              ElementsAre("I", "'ll", " we", "'ve", " don", "'t", " he", "'d", " O", "'", "Brien", " '",
                          "tis", "'", "S"));
}

TEST(PreTokenizerTest, TheLastSpaceOfARunGoesToTheWord) {
  EXPECT_THAT(pieces_of("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pieces_of("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(pieces_of("a\nb"), ElementsAre("a", "\n", "b"));
  EXPECT_THAT(pieces_of("a \n b  "), ElementsAre("a", " \n", " b", "  "));
}

TEST(PreTokenizerTest, ClassesAreThoseOfUnicode) {
  EXPECT_THAT(pieces_of("na\u00efve \u65e5\u672c\u8a9e \u0663\u0664x"),
              ElementsAre("na\u00efve", " \u65e5\u672c\u8a9e", " \u0663\u0664", "x"));
  EXPECT_THAT(pieces_of("\u00a0a\u3000\u3000b"), ElementsAre("\u00a0", "a", "\u3000", "\u3000", "b"));
  EXPECT_THAT(pieces_of("x\u00b2\u2014\u2014y"), ElementsAre("x", "\u00b2", "\u2014\u2014", "y"));
}

TEST(PreTokenizerTest, BytesThatAreNotUtf8AreOther) {
  EXPECT_THAT(pieces_of("a\xff\xc0\x80z"), ElementsAre("a", "\xff\xc0\x80", "z"));
  EXPECT_THAT(pieces_of("\xed\xa0\x80"), ElementsAre("\xed\xa0\x80"));
  EXPECT_THAT(pieces_of("\xe6\x97"), ElementsAre("\xe6\x97"));
}

TEST(PreTokenizerTest, ALongRunIsCutAtTheLimit) {
  EXPECT_EQ(pieces_of(std::string(detail::kMaxPretokenBytes + 1, 'a')).size(), 2u);
}

TEST(PreTokenizerTest, ASafeCutChangesNoPreToken) {
  const std::string text = austen("persuasion").substr(0, 20000);
  const std::vector<std::string> whole = pieces_of(text);
  for (std::size_t end = 100; end < text.size(); end += 777) {
    const std::size_t cut = detail::last_safe_cut(std::string_view(text).substr(0, end));
    std::vector<std::string> parts = pieces_of(text.substr(0, cut));
    const std::vector<std::string> rest = pieces_of(text.substr(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, whole) << "cut at " << cut;
  }
}

TEST(PreTokenizerTest, WideRulesIncludeOneCharacterBeforeAWord) {
  EXPECT_THAT(pieces_of("f(x) \"hi\" \tword", SplitRule::cl100k),
              ElementsAre("f", "(x", ")", " \"", "hi", "\"", " ", "\tword"));
  EXPECT_THAT(pieces_of("a\u00a0b\u3000\u3000c", SplitRule::cl100k),
              ElementsAre("a", "\u00a0b", "\u3000", "\u3000c"));
}

TEST(PreTokenizerTest, WideRulesJoinASignToAPlainSpaceAlone) {
  EXPECT_THAT(pieces_of(" (\t(\u00a0(", SplitRule::cl100k), ElementsAre(" (", "\t", "(", "\u00a0", "("));
}

TEST(PreTokenizerTest, WideRulesContractInAnyCase) {
  EXPECT_THAT(pieces_of("DON'T we'Ll 'sta x'\u017fy", SplitRule::qwen2),
              ElementsAre("DON", "'T", " we", "'Ll", " '", "sta", " x", "'\u017f", "y"));
}

TEST(PreTokenizerTest, DigitsAreGroupedByThreesOrSingle) {
  EXPECT_THAT(pieces_of("a 12345", SplitRule::cl100k), ElementsAre("a", " ", "123", "45"));
  EXPECT_THAT(pieces_of("a 123", SplitRule::qwen2), ElementsAre("a", " ", "1", "2", "3"));
  EXPECT_THAT(pieces_of("a  12 b's\u00b2", SplitRule::digits),
              ElementsAre("a", "  ", "1", "2", " b", "'s", "\u00b2"));
}

TEST(PreTokenizerTest, WideRulesEndPreTokensAtLines) {
  EXPECT_THAT(pieces_of("end.\r\n\n  next \n\n  x", SplitRule::cl100k),
              ElementsAre("end", ".\r\n\n", " ", " next", " \n\n", " ", " x"));
  EXPECT_THAT(pieces_of("a\nb", SplitRule::cl100k), ElementsAre("a", "\n", "b"));
  EXPECT_THAT(pieces_of("  \n  ", SplitRule::cl100k), ElementsAre("  \n", "  "));
}

TEST(PreTokenizerTest, WideRulesAreSafelyCutAtLinesToo) {
  EXPECT_EQ(detail::last_safe_cut("\u4eca\u3002\n\u660e\u3002", SplitRule::cl100k), 7u);
  EXPECT_EQ(detail::last_safe_cut("a.\nb", SplitRule::cl100k), 3u);
  EXPECT_EQ(detail::last_safe_cut("a.\n\n", SplitRule::cl100k), 0u);
  EXPECT_EQ(detail::last_safe_cut("a.\n\xe3\x80", SplitRule::cl100k), 0u);  // may become a space
}

TEST(PreTokenizerTest, EachRuleIsFoundByItsExpression) {
  for (const SplitRule rule : {SplitRule::gpt2, SplitRule::cl100k, SplitRule::qwen2})
    EXPECT_EQ(detail::rule_of_regex(detail::regex_of(rule)), rule);
  EXPECT_FALSE(detail::rule_of_regex("\\w+").has_value());
}

TEST(PreTokenizerTest, TextWithoutAsciiIsSafelyCutBeforeItsLineEnds) {
  EXPECT_EQ(detail::last_safe_cut("\u4eca\u3002\n\u660e"), 6u);
  EXPECT_EQ(detail::last_safe_cut("\u4eca\u3000\n\u660e"), 0u) << "an ideographic space joins the line end";
  EXPECT_EQ(detail::last_safe_cut("\x80\n"), 0u) << "no character";
}

TEST(PreTokenizerTest, ThereIsNoSafeCutInsideARun) {
  EXPECT_EQ(detail::last_safe_cut("aaaa"), 0u);
  EXPECT_EQ(detail::last_safe_cut("    "), 0u);
  EXPECT_EQ(detail::last_safe_cut("\u00a0 a"), 0u);
  EXPECT_EQ(detail::last_safe_cut("a  b"), 1u);
}

}  // namespace
}  // namespace strata
