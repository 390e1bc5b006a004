// Texts that may become a JSON object, and those that may not.
#include <strata/text/json_object_text.h>

#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/rng.h>

namespace strata {
namespace {

/// How many bytes are taken.
std::size_t taken(std::string_view text, JsonObjectText& state) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (!state.push(static_cast<unsigned char>(text[i]))) return i;
  return text.size();
}
bool is_whole(std::string_view text) {
  JsonObjectText state;
  return taken(text, state) == text.size() && state.is_complete();
}
/// Where the first byte is that is refused; -1: there is none.
int refused_at(std::string_view text) {
  JsonObjectText state;
  const std::size_t n = taken(text, state);
  return n == text.size() ? -1 : static_cast<int>(n);
}

TEST(JsonObjectTextTest, WholeObjectsAreComplete) {
  for (const char* text :
       {"{}", " \n{ } \t\r\n", R"({"a":1})", R"({"a": [], "b": {}, "": [[{}], null, true, false]})",
        R"({"n": [0, -0, 10, -1.5, 0.25e+3, 1E9, 2e-7, -0.0]})", R"({"s": "\" \\ \/ \b \f \n \r \t A"})",
        R"({"pair": "\uD83D\ude00 \uFFFF"})",
        "{\"\xC3\xA9\": \"\xE2\x82\xAC \xF0\x9F\x98\x80 \xED\x9F\xBF\"}"}) {
    EXPECT_TRUE(is_whole(text)) << text;
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
}

TEST(JsonObjectTextTest, TheFirstByteThatCannotGoOnIsRefused) {
  EXPECT_EQ(refused_at("[1]"), 0) << "an array is no object";
  EXPECT_EQ(refused_at("{1}"), 1);
  EXPECT_EQ(refused_at(R"({"a" 1})"), 5);
  EXPECT_EQ(refused_at(R"({"a":1,})"), 7);
  EXPECT_EQ(refused_at(R"({"a":[1,]})"), 8);
  EXPECT_EQ(refused_at(R"({"a":[1})"), 7);
  EXPECT_EQ(refused_at(R"({"a":1]})"), 6);
  EXPECT_EQ(refused_at(R"({"a":01})"), 6);
  EXPECT_EQ(refused_at(R"({"a":+1})"), 5);
  EXPECT_EQ(refused_at(R"({"a":1.})"), 7);
  EXPECT_EQ(refused_at(R"({"a":.5})"), 5);
  EXPECT_EQ(refused_at(R"({"a":1e})"), 7);
  EXPECT_EQ(refused_at(R"({"a":1e5.0})"), 8);
  EXPECT_EQ(refused_at(R"({"a":-})"), 6);
  EXPECT_EQ(refused_at(R"({"a":tru})"), 8);
  EXPECT_EQ(refused_at(R"({"a":nul l})"), 8);
  EXPECT_EQ(refused_at("{\"a\nb\":1}"), 3);
  EXPECT_EQ(refused_at(R"({"\x":1})"), 3);
  EXPECT_EQ(refused_at(R"({"\u12g4":1})"), 6);
  EXPECT_EQ(refused_at("{}{"), 2);
  EXPECT_EQ(refused_at("{}x"), 2);
}

TEST(JsonObjectTextTest, StringsAreTextInUtf8) {
  EXPECT_EQ(refused_at("{\"\x80"), 2) << "nothing begins with it";
  EXPECT_EQ(refused_at("{\"\xC0"), 2) << "overlong";
  EXPECT_EQ(refused_at("{\"\xE0\x9F"), 3) << "overlong";
  EXPECT_EQ(refused_at("{\"\xF0\x8F"), 3) << "overlong";
  EXPECT_EQ(refused_at("{\"\xED\xA0"), 3) << "a surrogate";
  EXPECT_EQ(refused_at("{\"\xF4\x90"), 3) << "above U+10FFFF";
  EXPECT_EQ(refused_at("{\"\xF5"), 2);
  EXPECT_EQ(refused_at("{\"\xE2\x82\""), 4) << "a byte of it is missing";
}

TEST(JsonObjectTextTest, EscapedSurrogatesComeInPairs) {
  EXPECT_EQ(refused_at(R"({"\uDC)"), 5) << "the second half alone";
  EXPECT_EQ(refused_at(R"({"\uD83D")"), 8);
  EXPECT_EQ(refused_at(R"({"\uD83D\n)"), 9);
  EXPECT_EQ(refused_at(R"({"\uD83D\u0)"), 10);
  EXPECT_EQ(refused_at(R"({"\uD83D\uD8)"), 11);
}

TEST(JsonObjectTextTest, DepthAndWhiteSpaceAreBounded) {
  const auto nested = [](std::size_t n) {
    return "{\"a\":" + std::string(n - 1, '[') + std::string(n - 1, ']') + "}";
  };
  EXPECT_TRUE(is_whole(nested(JsonObjectText::kMaxDepth)));
  EXPECT_EQ(refused_at(nested(JsonObjectText::kMaxDepth + 1)), 5 + JsonObjectText::kMaxDepth - 1);
  EXPECT_TRUE(is_whole("{" + std::string(64, ' ') + "}"));
  EXPECT_EQ(refused_at("{" + std::string(65, ' ') + "}"), 65);
  EXPECT_EQ(refused_at("{\"a\":1" + std::string(65, ' ') + "}"), 70);
}

// Any bytes that it takes are completed by such as it takes, and are then JSON to another parser.
TEST(JsonObjectTextTest, WhatIsTakenCanBeCompletedAndIsJson) {
  constexpr std::string_view kUsual = "{}[]\",:\\u0dD8cC1eE.-+tfnrulasxyz \n\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98";
  std::size_t longest = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Rng rng(seed, 1);
    JsonObjectText state;
    std::string text;
    std::uint64_t at = 0;
    for (int tries = 0; tries < 400 && !state.is_complete(); ++tries) {
      const auto byte = static_cast<unsigned char>(
          rng.below(at, 8) == 0 ? rng.below(at + 1, 256)
                                : static_cast<unsigned char>(kUsual[rng.below(at + 1, kUsual.size())]));
      at += 2;
      if (state.push(byte)) text += static_cast<char>(byte);
    }
    // The bytes that close whatever is open, the first of which that is taken.
    constexpr std::string_view kClosing = "\"}]0\\udDCalesr:{\xBF\xA0\x90\x80";
    for (int more = 0; more < 2000 && !state.is_complete(); ++more) {
      bool is_taken = false;
      for (const char byte : kClosing)
        if (state.push(static_cast<unsigned char>(byte))) {
          text += byte;
          is_taken = true;
          break;
        }
      ASSERT_TRUE(is_taken) << "seed " << seed << ": nothing may follow " << text;
    }
    ASSERT_TRUE(state.is_complete()) << "seed " << seed << ": " << text;
    // Numbers too large for a double are JSON, too.
    ASSERT_TRUE(nlohmann::json::accept(text) || text.find_first_of("eE") != std::string::npos)
        << "seed " << seed << ": " << text;
    longest = std::max(longest, text.size());
  }
  EXPECT_GT(longest, 100U);
}

}  // namespace
}  // namespace strata
