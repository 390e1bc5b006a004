// Long texts are tokenized part by part.
#include <strata/text/token_cache.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "support/memory_io.h"

namespace strata {
namespace {

struct TextPartsTest : testing::Test {
  std::vector<std::int32_t> ids_of(const std::string& text) {
    io.put("a.txt", text);
    const auto cache = must(TokenCache::open_or_build(io, tokenizer, {"a.txt"}, "cache.tokens"));
    std::vector<std::int32_t> ids;
    for (std::uint64_t i = 0; i + 1 < cache->n_tokens(); ++i) ids.push_back(cache->token(i));
    return ids;
  }
  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = must(Tokenizer::train(std::vector<std::string_view>{"aaaa text about texts"}, 262));
};

TEST_F(TextPartsTest, ARunThatIsLongerThanABlockHasTheTokensOfTheWholeText) {
  for (const std::size_t bytes : {4 * kMiB + 1, 5 * kMiB}) {
    const std::string text =
        "\xEF\xBB\xBF" + std::string(bytes, 'a') + " text about texts " + std::string(bytes, 't');
    EXPECT_EQ(ids_of(text), tokenizer.encode(text.substr(3)));
  }
}

TEST_F(TextPartsTest, LinesWithoutAsciiHaveTheTokensOfTheWholeText) {
  std::string text;
  while (text.size() < 9 * kMiB) text += "\u4eca\u65e5\u306f\u3002\n";
  EXPECT_EQ(ids_of(text), tokenizer.encode(text));
}

TEST_F(TextPartsTest, ATextThatCannotBeTokenizedInPartsIsRefusedWithBothSizes) {
  std::string text = "some text ";
  text.resize(66 * kMiB, 'a');
  io.put("b.txt", text);
  const Status status = TokenCache::open_or_build(io, tokenizer, {"b.txt"}, "cache.tokens").status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(
      std::string(status.message()),
      testing::HasSubstr("b.txt: there is no white space in 68157431 bytes from byte 9 on; at most 67108864 "
                         "can be tokenized at once"));
}

}  // namespace
}  // namespace strata
