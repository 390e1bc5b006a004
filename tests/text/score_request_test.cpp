#include <strata/text/score_request.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int32_t kSpaceA = 256, kAb = 257, kEnd = 258;

/// The 256 bytes, " a", "ab" and a special token.
const Tokenizer& tokenizer() {
  static const Tokenizer built = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    tokens.insert(tokens.end(), {" a", "ab", "<end>"});
    return must(Tokenizer::create(tokens, {{' ', 'a', 256}, {'a', 'b', 257}}, {kEnd}));
  }();
  return built;
}
ScoreEncoding encoding(std::size_t context = 16) { return {tokenizer(), kEnd, 259, context}; }

std::string problem(const std::string& line, const ScoreEncoding& with = encoding()) {
  ScoreRequest request;
  Status status = parse_score_request(line, request);
  if (status.is_ok()) status = encode_score_request(request, with).status();
  return std::string(status.message());
}
ScoreTokens tokens(const std::string& line, const ScoreEncoding& with = encoding()) {
  ScoreRequest request;
  must(parse_score_request(line, request));
  return must(encode_score_request(request, with));
}
/// The tokens of a line that is one sequence.
ScoreSequence sequence(const std::string& line, const ScoreEncoding& with = encoding()) {
  const ScoreTokens all = tokens(line, with);
  EXPECT_EQ(all.sequences.size(), 1U);
  EXPECT_EQ(all.scored, all.sequences[0].scored);
  return all.sequences[0];
}

TEST(ScoreRequestTest, WhiteSpaceAtTheEndOfAContextBelongsToTheContinuation) {
  const ScoreSequence moved = sequence(R"({"context": "x ", "continuation": "a"})");
  EXPECT_THAT(moved.ids, ElementsAre('x', kSpaceA));
  EXPECT_EQ(moved.scored, 1U);
  // U+00A0 and U+001F are white space for Python's str.rstrip(), too.
  EXPECT_EQ(sequence("{\"context\": \"x\\u00a0\\u001f\", \"continuation\": \"a\"}").scored, 4U);
  EXPECT_EQ(sequence("{\"context\": \"x\u00e9\", \"continuation\": \"a\"}").scored, 1U) << "a letter";
}

TEST(ScoreRequestTest, TheContinuationIsWhatTheWholeHasAfterTheTokensOfTheContext) {
  const ScoreSequence pair = sequence(R"({"context": "xa", "continuation": "bc"})");
  EXPECT_THAT(pair.ids, ElementsAre('x', 'a', 'c'))
      << "the context alone has two tokens, of the whole are x ab c";
  EXPECT_EQ(pair.scored, 1U);
  EXPECT_THAT(problem(R"({"context": "a", "continuation": "b"})"),
              HasSubstr("the continuation has no tokens: the context alone has 1"));
}

TEST(ScoreRequestTest, AnEmptyContextBecomesThePrefixOnce) {
  const ScoreSequence plain = sequence(R"({"context": "", "continuation": "ab"})");
  EXPECT_THAT(plain.ids, ElementsAre(kEnd, kAb));
  EXPECT_EQ(plain.scored, 1U);
  const ScoreSequence own = sequence(R"({"context": "", "continuation": "<end>ab"})");
  EXPECT_THAT(own.ids, ElementsAre(kEnd, kAb));
  EXPECT_EQ(own.scored, 1U);
  EXPECT_THAT(sequence(R"({"context": "  ", "continuation": "b"})").ids, ElementsAre(kEnd, ' ', ' ', 'b'));
  EXPECT_THAT(sequence(R"({"context_ids": [], "continuation_ids": [7]})").ids, ElementsAre(kEnd, 7));
  ScoreEncoding without = encoding();
  without.prefix_id = -1;
  EXPECT_THAT(problem(R"({"context": "", "continuation": "ab"})", without),
              HasSubstr("the context is empty, and the model has no token that begins or ends a text"));
}

TEST(ScoreRequestTest, ALongContextIsCutOnTheLeft) {
  // The model reads four tokens; the last one is predicted only.
  const ScoreTokens cut = tokens(R"({"context_ids": [1, 2, 3, 4], "continuation_ids": [5, 6]})", encoding(4));
  EXPECT_THAT(cut.sequences[0].ids, ElementsAre(2, 3, 4, 5, 6));
  EXPECT_EQ(cut.cut, 1U);
  EXPECT_EQ(tokens(R"({"context_ids": [2, 3, 4], "continuation_ids": [5, 6]})", encoding(4)).cut, 0U);
  EXPECT_EQ(sequence(R"({"context_ids": [1], "continuation_ids": [2, 3, 4, 5]})", encoding(4)).scored, 4U);
  EXPECT_THAT(problem(R"({"context_ids": [1], "continuation_ids": [2, 3, 4, 5, 6]})", encoding(4)),
              HasSubstr("the continuation has 5 tokens, but the model reads at most 4 at once"));
}

TEST(ScoreRequestTest, ATextBecomesDisjointPartsWithAsMuchContextAsFits) {
  const ScoreTokens parts = tokens(R"({"text": "0123456789"})", encoding(4));
  ASSERT_EQ(parts.sequences.size(), 3U);
  EXPECT_THAT(parts.sequences[0].ids, ElementsAre(kEnd, '0', '1', '2', '3'));
  EXPECT_THAT(parts.sequences[1].ids, ElementsAre('3', '4', '5', '6', '7'));
  EXPECT_THAT(parts.sequences[2].ids, ElementsAre('5', '6', '7', '8', '9'));
  EXPECT_EQ(parts.sequences[2].scored, 2U);
  EXPECT_EQ(parts.scored, 10U);
  EXPECT_THAT(sequence(R"({"text": "ab"})").ids, ElementsAre(kEnd, kAb));
}

TEST(ScoreRequestTest, TheIdIsKeptAlsoOfALineWithAnError) {
  ScoreRequest request;
  must(parse_score_request(R"({"text": "a", "id": {"n": [1, "x"]}})", request));
  EXPECT_EQ(request.id, R"({"n":[1,"x"]})");
  ScoreRequest bad;
  EXPECT_EQ(parse_score_request(R"({"text": 3, "id": 7})", bad).code(), Code::invalid);
  EXPECT_EQ(bad.id, "7");
  ScoreRequest none;
  must(parse_score_request(R"({"text": "a"})", none));
  EXPECT_THAT(none.id, IsEmpty());
}

TEST(ScoreRequestTest, AnAdapterIsAName) {
  ScoreRequest named, none, silent;
  must(parse_score_request(R"({"text": "a", "id": 1, "adapter": "law"})", named));
  must(parse_score_request(R"({"context": "a", "continuation": "b", "adapter": null})", none));
  must(parse_score_request(R"({"context_ids": [1], "continuation_ids": [2]})", silent));
  EXPECT_EQ(named.adapter, "law");
  EXPECT_EQ(none.adapter, "");
  EXPECT_EQ(silent.adapter, std::nullopt);
  EXPECT_THAT(problem(R"({"text": "a", "adapter": 3})"), HasSubstr("'adapter' is neither a name nor null"));
  EXPECT_THAT(problem(R"({"text": "a", "adapter": ""})"), HasSubstr("'adapter' is neither a name nor null"));
}

TEST(ScoreRequestTest, MistakesAreNamed) {
  EXPECT_THAT(problem("nonsense"), HasSubstr("not JSON"));
  EXPECT_THAT(problem("[1]"), HasSubstr("it is not a JSON object"));
  EXPECT_THAT(problem(R"({"context": "a", "continuation": "b", "weight": 1})"),
              HasSubstr("the key 'weight' is unknown"));
  EXPECT_THAT(problem(R"({"context": "a", "continuation_ids": [1]})"),
              HasSubstr("it has neither 'context' and"));
  EXPECT_THAT(problem(R"({"context": "a", "continuation": "b", "text": "c"})"), HasSubstr("it has neither"));
  EXPECT_THAT(problem(R"({"context": 1, "continuation": "b"})"), HasSubstr("'context' is not a string"));
  EXPECT_THAT(problem(R"({"context": "a", "continuation": ""})"), HasSubstr("'continuation' is empty"));
  EXPECT_THAT(problem(R"({"text": ""})"), HasSubstr("'text' is empty"));
  EXPECT_THAT(problem(R"({"context_ids": [], "continuation_ids": []})"),
              HasSubstr("'continuation_ids' is empty"));
  EXPECT_THAT(problem(R"({"context_ids": "1", "continuation_ids": [1]})"),
              HasSubstr("'context_ids' is not an array"));
  for (const std::string id : {"-1", "1.5", "\"1\"", "4294967296"})
    EXPECT_THAT(
        problem(R"({"context_ids": [1, )" + id + R"(], "continuation_ids": [1]})"),
        HasSubstr("element 1 of 'context_ids' is " + id + "; a token id is a whole number from 0 to"));
  EXPECT_THAT(problem(R"({"context_ids": [1], "continuation_ids": [2, 259]})"),
              HasSubstr("the continuation: token 259 has no row in the model, which has 259 tokens"));
}

}  // namespace
}  // namespace strata
