// Documents and their loss mask.
#include <strata/text/token_cache.h>

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <support/corpus.h>
#include <support/memory_io.h>

#include "text/cache/token_cache_texts.h"

namespace strata {
namespace {

using test::kFirst;
using test::tokenizer_of;
using test::tokens_of;

/// Adds the two markers of ChatML to a tokenizer.
Tokenizer with_chatml(const Tokenizer& words) {
  TokenizerSpec spec = words.spec();
  for (const char* marker : {"<|im_start|>", "<|im_end|>"}) {
    spec.added.push_back({.id = static_cast<std::int32_t>(spec.tokens.size()), .content = marker});
    spec.tokens.push_back(marker);
  }
  return must(Tokenizer::create(std::move(spec)));
}

struct RecordCacheTest : testing::Test {
  RecordCacheTest() {
    io.put("a.txt", kFirst);
    io.put("b.jsonl", R"({"prompt": "Who?", "completion": " Elinor.", "id": 3})"
                      "\n"
                      R"({"prompt": "", "completion": "Marianne"})"
                      "\n");
    io.put("c.jsonl", R"({"messages": [{"role": "user", "content": "<|endoftext|>"},)"
                      R"({"role": "assistant", "content": "Sussex"}]})");
  }
  std::unique_ptr<TokenCache> cached(const Result<ChatTemplate>& chat = ChatTemplate{}) {
    return must(TokenCache::open_or_build(io, tokenizer, {"a.txt", "b.jsonl", "c.jsonl"}, "c", chat));
  }
  /// The text of document `d`, with the part in the loss in brackets.
  std::string drawn(const TokenCache& cache, std::uint64_t d) {
    std::string out;
    for (std::uint64_t i = cache.document_begin(d); i < cache.document_end(d); ++i) {
      const bool before = i > cache.document_begin(d) && cache.loss_mask(i - 1);
      if (cache.loss_mask(i) != before) out += before ? "]" : "[";
      out += tokenizer.token(cache.token(i));
    }
    return out + (cache.loss_mask(cache.document_end(d) - 1) ? "]" : "");
  }
  MemoryIo io{{.descriptors = true}};
  Tokenizer tokenizer = tokenizer_of(270);
};

TEST_F(RecordCacheTest, EachRecordIsADocumentWithItsAnswerInTheLoss) {
  const auto cache = cached();
  ASSERT_EQ(cache->n_documents(), 4u);
  EXPECT_EQ(drawn(*cache, 0), "[" + kFirst + "<|endoftext|>]");
  EXPECT_EQ(drawn(*cache, 1), "Who?[ Elinor.<|endoftext|>]");
  EXPECT_EQ(drawn(*cache, 2), "[Marianne<|endoftext|>]");
  EXPECT_EQ(drawn(*cache, 3), "User:\n<|endoftext|>\nAssistant:\n[Sussex\n<|endoftext|>]");
  EXPECT_EQ(cache->n_tokens() - cache->n_loss_tokens(),
            tokenizer.encode("Who?").size() + tokenizer.encode("User:\n").size() +
                tokenizer.encode("<|endoftext|>").size() + tokenizer.encode("\nAssistant:\n").size());
}

TEST_F(RecordCacheTest, ACompletionGoesOnWithoutAPrefixSpaceOfItsOwn) {
  const Tokenizer mistral = must(
      Tokenizer::load(posix_io(), std::string(STRATA_SOURCE_DIR) + "/tests/text/tokenizers/mistral.json"));
  io.put("d.jsonl", R"({"prompt": "The dog", "completion": " sees it"})");
  const auto cache = must(TokenCache::open_or_build(io, mistral, {"d.jsonl"}, "c"));
  std::vector<std::int32_t> ids = tokens_of(*cache);
  ASSERT_EQ(ids.back(), mistral.markers().end);
  ids.pop_back();
  EXPECT_EQ(must(mistral.decode(ids)), "<s> The dog sees it");  // the first space is the tokenizer's
}

TEST_F(RecordCacheTest, ATokenOfTheFormatIsTextInAContent) {
  const auto cache = cached();
  std::uint64_t ends = 0;
  for (std::uint64_t i = 0; i < cache->n_tokens(); ++i)
    ends += cache->token(i) == tokenizer.markers().end ? 1u : 0u;
  EXPECT_EQ(ends, cache->n_documents());
}

TEST_F(RecordCacheTest, BuildingNotesWhatWasRead) {
  const std::vector<std::string> notes = cached()->notes();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0], "b.jsonl: 2 prompt-completion records (prompt, completion); ignored: 'id' (1)");
  EXPECT_EQ(notes[1], "c.jsonl: 1 conversation (messages) read as chats (plain)");
}

TEST_F(RecordCacheTest, ACacheThatIsReusedNotesTheFormsOfItsFiles) {
  cached();
  const std::vector<std::string> notes = cached()->notes();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0], "b.jsonl: prompt-completion records (prompt, completion)");
  EXPECT_EQ(notes[1], "c.jsonl: conversations (messages) read as chats (plain)");
}

TEST_F(RecordCacheTest, AnotherChatFormatEncodesAgainOnlyWhereThereAreMessages) {
  const ChatTemplate chatml = must(ChatTemplate::named("chatml"));
  tokenizer = with_chatml(tokenizer);
  cached();
  EXPECT_EQ(cached(chatml)->rebuild_reason(), "built with another chat template");
  EXPECT_EQ(cached(chatml)->rebuild_reason(), "");
  const ChatTemplate kind = must(ChatTemplate::parse("Be kind." + chatml.jinja(), {}));
  EXPECT_EQ(cached(kind)->rebuild_reason(), "built with another chat template");
  const auto without = [&](const Result<ChatTemplate>& chat) {
    return must(TokenCache::open_or_build(io, tokenizer, {"a.txt", "b.jsonl"}, "d", chat))->rebuild_reason();
  };
  EXPECT_EQ(without(ChatTemplate{}), "no cache yet");
  EXPECT_EQ(without(chatml), "");
}

TEST_F(RecordCacheTest, ATemplateWithMarkersThatTheTokenizerLacksIsRefusedWithTheFile) {
  const Status status =
      TokenCache::open_or_build(io, tokenizer, {"a.txt", "c.jsonl"}, "c", ChatTemplate::named("chatml"))
          .status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_EQ(status.message(),
            "c.jsonl: conversations are written as chatml, but the tokenizer has no token '<|im_start|>'");
}

TEST_F(RecordCacheTest, JsonlReadAsTextIsAnotherSource) {
  io.put("b.txt", io.get("b.jsonl"));
  must(TokenCache::open_or_build(io, tokenizer, {"b.txt"}, "d"));
  EXPECT_EQ(must(TokenCache::open_or_build(io, tokenizer, {"b.jsonl"}, "d"))->rebuild_reason(),
            "built from other text");
}

TEST_F(RecordCacheTest, EveryFlippedBitIsDetectedAndTheCacheRebuilt) {
  const std::vector<std::int32_t> tokens = tokens_of(*cached());
  const std::size_t size = io.get("c").size();
  for (std::size_t at = 0; at < size; ++at) {
    io.flip("c", at);
    ASSERT_FALSE(TokenCache::open(io, tokenizer, "c").has_value()) << "byte " << at;
    ASSERT_NE(cached()->rebuild_reason(), "") << "byte " << at;
  }
  EXPECT_EQ(tokens_of(*cached()), tokens);
}

TEST_F(RecordCacheTest, ATruncatedFileIsCorrupt) {
  cached();
  const std::string whole = io.get("c");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    io.put("cut", whole.substr(0, n));
    ASSERT_EQ(TokenCache::open(io, tokenizer, "cut").status().code(), Code::corrupt) << n << " bytes";
  }
}

// A file with correct digests and wrong numbers, as a tool with a bug would write it.
TEST_F(RecordCacheTest, NumbersThatWouldIndexPastTheEndAreRefusedUnderARightChecksum) {
  const auto cache = cached();
  const std::string whole = io.get("c");
  const auto forged = [&](std::size_t at, std::string_view bytes) {
    std::string file = whole;
    file.replace(at, bytes.size(), bytes);
    const auto seal = [&](std::size_t to, std::size_t from, std::size_t n) {
      const Digest digest = digest_of(std::as_bytes(std::span(file).subspan(from, n)));
      std::memcpy(&file[to], digest.data(), digest.size());
    };
    seal(72, 128, file.size() - 128);
    seal(112, 0, 112);
    io.put("forged", file);
    return TokenCache::open(io, tokenizer, "forged").status();
  };
  using namespace std::string_view_literals;
  EXPECT_TRUE(forged(128, whole.substr(128, 2)).is_ok());
  const std::size_t documents = whole.size() - cache->n_documents() * 8;
  EXPECT_THAT(forged(128, "\xff\xff"sv).message(),
              testing::HasSubstr("token 0 is 65535 in a vocabulary of 270"));
  EXPECT_EQ(forged(documents - 1, "\xff"sv).code(), Code::corrupt);           // mask bits past the last token
  EXPECT_EQ(forged(documents, "\x01"sv).code(), Code::corrupt);               // first document not at 0
  EXPECT_EQ(forged(documents + 8, "\x00\x00"sv).code(), Code::corrupt);       // an empty document
  EXPECT_EQ(forged(documents + 24, "\xff\xff\xff"sv).code(), Code::corrupt);  // past the end
  EXPECT_EQ(forged(16, "\xff\xff\xff\xff\xff\xff\xff\xff"sv).code(), Code::corrupt);  // tokens that overflow
  // The number of documents is increased by 2^61, so that its product with 8 bytes overflows to the same
  // size.
  EXPECT_THAT(forged(88, "\x04\x00\x00\x00\x00\x00\x00\x20"sv).message(),
              testing::HasSubstr(" bytes after its header, which says "));
}

TEST_F(RecordCacheTest, AFileOfTheFirstVersionIsRebuilt) {
  cached();
  std::string old = io.get("c");
  old[8] = 1;
  io.put("c", old);
  EXPECT_EQ(cached()->rebuild_reason(), "c: token cache version 1, but this program reads version 2");
}

TEST_F(RecordCacheTest, BadRecordsOfAllFilesAreReportedAndLeaveNothingBehind) {
  io.put("b.jsonl", "{\"text\": 1}\n");
  io.put("c.jsonl", "{}\n");
  const Status status =
      TokenCache::open_or_build(io, tokenizer, {"a.txt", "b.jsonl", "c.jsonl"}, "d/c").status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_TRUE(status.message().starts_with("b.jsonl: line 1: 'text' must be a string")) << status.message();
  EXPECT_THAT(status.message(), testing::HasSubstr("\nc.jsonl: line 1: the first record must have"));
  EXPECT_TRUE(must(io.list("d")).empty());
}

TEST_F(RecordCacheTest, ACacheIsRecognizedByItsFirstBytes) {
  cached();
  EXPECT_TRUE(must(TokenCache::is_cache(io, "c")));
  EXPECT_FALSE(must(TokenCache::is_cache(io, "a.txt")));
  io.put("short", "STRAT");
  EXPECT_FALSE(must(TokenCache::is_cache(io, "short")));
}

// The mask is stored from the first masked token on, at any bit position of a word.
TEST_F(RecordCacheTest, TheFirstTokenOutsideTheLossMayBeAnywhere) {
  for (std::size_t n = 1; n < 140; ++n) {
    io.put("t.txt", std::string(n, ' '));
    const Tokenizer bytes = must(Tokenizer::train({}, 257));
    const auto cache = must(TokenCache::open_or_build(io, bytes, {"t.txt", "b.jsonl"}, "t"));
    for (std::uint64_t i = 0; i <= n; ++i) ASSERT_TRUE(cache->loss_mask(i)) << n << " " << i;
    for (std::uint64_t i = n + 1; i < n + 5; ++i) ASSERT_FALSE(cache->loss_mask(i)) << n << " " << i;
    ASSERT_TRUE(cache->loss_mask(n + 5)) << n;
  }
}

TEST_F(RecordCacheTest, FilesThatCannotBeReadAreReportedWithAllOtherBadOnes) {
  io.put("b.jsonl", "{\"text\": 1}\n");
  const std::vector<std::string> sources = {"gone.txt", "b.jsonl", "a.parquet", "a.txt", "lost.txt"};
  const Status status = TokenCache::open_or_build(io, tokenizer, sources, "d/c").status();
  EXPECT_EQ(status.code(), Code::not_found);  // the code of the first one
  EXPECT_THAT(status.message(),
              testing::ContainsRegex("gone.txt.*\nb.jsonl: line 1.*\na.parquet: .*\n.*lost.txt"));
  EXPECT_TRUE(must(io.list("d")).empty());
}

TEST_F(RecordCacheTest, SourcesThatAreGoneSinceTheLastTimeAreAllNamed) {
  cached();
  const Status status = TokenCache::open_or_build(io, tokenizer, {"gone.txt", "lost.txt"}, "c").status();
  EXPECT_THAT(status.message(), testing::ContainsRegex("gone.txt.*\n.*lost.txt"));
}

}  // namespace
}  // namespace strata
