// Data that is no text is recognized wherever blocks are split.
#include <strata/text/text_check.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

using namespace std::string_view_literals;
using ::testing::HasSubstr;

Status in_blocks(std::string_view text, std::size_t block, std::string* note = nullptr) {
  TextCheck check("a.txt");
  for (std::size_t at = 0; at < text.size(); at += block) STRATA_TRY(check.add(text.substr(at, block)));
  STRATA_TRY(check.finish());
  if (note != nullptr) *note = check.note();
  return {};
}

std::string refusal(std::string_view text) {
  const Status status = check_text("a.txt", text);
  EXPECT_EQ(status.code(), status.is_ok() ? Code::ok : Code::invalid);
  return status.is_ok() ? std::string() : std::string(status.message());
}

TEST(TextCheckTest, TextInEveryScriptIsAcceptedInBlocksOfAnySize) {
  const std::string text =
      "Jane Aust\xC3\xA9n, \xE6\x96\x87\xE5\xAD\x97, \xF0\x9F\x93\x9A, \xD7\xA9\xD7\x9C\n";
  for (std::size_t block = 1; block <= text.size(); ++block) {
    std::string note = "unset";
    ASSERT_TRUE(in_blocks(text, block, &note).is_ok()) << block;
    EXPECT_EQ(note, "") << block;
  }
  EXPECT_TRUE(check_text("a.txt", "").is_ok());
}

TEST(TextCheckTest, MarksOfOtherEncodingsAreNamed) {
  EXPECT_THAT(refusal("\xFF\xFEJ\0a\0"sv), HasSubstr("a.txt: begins with the byte order mark of UTF-16"));
  EXPECT_THAT(refusal("\xFE\xFF\0J\0a"sv), HasSubstr("byte order mark of UTF-16"));
  EXPECT_THAT(refusal("\xFF\xFE\0\0J\0\0\0"sv), HasSubstr("byte order mark of UTF-32"));
  EXPECT_THAT(refusal("\xFF\xFE"sv), HasSubstr("iconv -f UTF-16 -t UTF-8"));
  EXPECT_EQ(refusal("\xEF\xBB\xBFJane"sv), "") << "the mark of UTF-8";
}

TEST(TextCheckTest, TheFirstNulIsNamedWithItsOffsetInTheFile) {
  EXPECT_THAT(refusal("J\0a\0n\0"sv), HasSubstr("a.txt: byte 1 is NUL"));
  EXPECT_THAT(std::string(in_blocks("Jane Austen\0"sv, 4).message()), HasSubstr("byte 11 is NUL"));
}

TEST(TextCheckTest, ManyInvalidBytesAreRefusedWithTheirFractionAndTheFirst) {
  const std::string latin = "caf\xE9 na\xEFve";
  EXPECT_THAT(refusal(latin),
              HasSubstr("a.txt: 2 of its 10 bytes (20.0 %) are not UTF-8, the first is byte 3"));
  for (std::size_t block = 1; block <= latin.size(); ++block)
    EXPECT_EQ(std::string(in_blocks(latin, block).message()), refusal(latin)) << block;
  EXPECT_THAT(refusal("Jane \xC3"), HasSubstr("1 of its 6 bytes")) << "cut short";
  EXPECT_THAT(refusal("\xF0\x9F\xE6\x96\x87"), HasSubstr("2 of its 5 bytes")) << "one begins within another";
}

TEST(TextCheckTest, AFewInvalidBytesAreAcceptedAndReported) {
  const std::string text = std::string(500, 'a') + "\xE9" + std::string(500, 'b');
  for (const std::size_t block : {1u, 2u, 500u, 501u, 2000u}) {
    std::string note;
    ASSERT_TRUE(in_blocks(text, block, &note).is_ok());
    EXPECT_THAT(note, HasSubstr("a.txt: 1 of its 1001 bytes are not UTF-8, the first is byte 500")) << block;
  }
}

}  // namespace
}  // namespace strata
