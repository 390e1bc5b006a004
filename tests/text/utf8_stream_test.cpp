#include <strata/text/utf8_stream.h>

#include <vector>

#include <gtest/gtest.h>

namespace strata {
namespace {

/// The text that each piece of bytes completes, followed by the result of finish().
std::vector<std::string> pieces(const std::vector<std::string>& bytes) {
  Utf8Stream stream;
  std::vector<std::string> out;
  for (const std::string& piece : bytes) out.push_back(stream.push(piece));
  out.push_back(stream.finish());
  return out;
}
std::string byte_by_byte(const std::string& bytes) {
  Utf8Stream stream;
  std::string out;
  for (const char byte : bytes) out += stream.push({&byte, 1});
  return out + stream.finish();
}
std::string at_once(const std::string& bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out + stream.finish();
}

using Strings = std::vector<std::string>;
const std::string kBad = "\xEF\xBF\xBD";  // U+FFFD

TEST(Utf8StreamTest, ACharacterIsReturnedOnceItIsComplete) {
  EXPECT_EQ(pieces({"a\xC3", "\xA9", "b"}), (Strings{"a", "\xC3\xA9", "b", ""}));
  EXPECT_EQ(pieces({"\xF0", "\x9F\x98", "\x80"}), (Strings{"", "", "\xF0\x9F\x98\x80", ""}));
  EXPECT_EQ(pieces({"\xE4\xBD", "\xA0\xE5", "\xA5\xBD!"}),
            (Strings{"", "\xE4\xBD\xA0", "\xE5\xA5\xBD!", ""}));
}

TEST(Utf8StreamTest, InvalidBytesAreReplacedAtOnceAndAnIncompleteTailAtTheEnd) {
  EXPECT_EQ(pieces({"\x80", "x"}), (Strings{kBad, "x", ""}));
  EXPECT_EQ(pieces({"\xC3", "x"}), (Strings{"", kBad + "x", ""}));
  EXPECT_EQ(pieces({"\xE4\xBD"}), (Strings{"", kBad + kBad}));
  EXPECT_EQ(pieces({"\xED\xA0"}), (Strings{kBad + kBad, ""})) << "half a surrogate pair never becomes one";
  EXPECT_EQ(pieces({"\xF4\x90"}), (Strings{kBad + kBad, ""})) << "past the last code point";
  EXPECT_EQ(pieces({"\xE0", "\xA0\x80"}), (Strings{"", "\xE0\xA0\x80", ""}));
  EXPECT_EQ(pieces({"\xED", "\x9F\xBF"}), (Strings{"", "\xED\x9F\xBF", ""}));
}

TEST(Utf8StreamTest, TheTextDoesNotDependOnHowTheBytesAreSplit) {
  std::string bytes;
  std::uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto byte = static_cast<unsigned>(state >> 56);
    bytes += static_cast<char>(byte % 3 == 0   ? 0x80 + byte % 64
                               : byte % 3 == 1 ? 0xC0 + byte % 64
                                               : byte % 128);
  }
  EXPECT_EQ(byte_by_byte(bytes), at_once(bytes));
  EXPECT_EQ(byte_by_byte("na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x8E\x89"),
            "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x8E\x89");
}

}  // namespace
}  // namespace strata
