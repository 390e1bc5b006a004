#include <strata/text/rewards/rewards.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RewardFunction::Stops goes_on = [] { return false; };

std::vector<double> rewards_of(const std::string& text, const std::vector<AnswerText>& answers) {
  const RewardSpec spec = must(parse_reward(text));
  std::vector<double> rewards(answers.size());
  must(must(create_reward(spec))->add(answers, spec.weight, rewards, goes_on));
  return rewards;
}

AnswerText answer(std::string text, bool ended = false, std::string_view record = {}) {
  return {.prompt = "how many?", .record = record, .answer = std::move(text), .ended = ended};
}

TEST(RewardsTest, RulesSayWhatAnAnswerIsWorth) {
  EXPECT_THAT(rewards_of("matches:^[0-9]+$", {answer("42"), answer("42 or 43")}), ElementsAre(1, 0));
  EXPECT_THAT(rewards_of("2*matches:[0-9]", {answer("no"), answer("a1")}), ElementsAre(0, 2));
  EXPECT_THAT(rewards_of("density:[aeiou]+", {answer("aab"), answer(""), answer("xyz")}),
              ElementsAre(2.0 / 3, 0, 0));
  EXPECT_THAT(rewards_of("length:10", {answer("12345"), answer("1234567890"), answer(std::string(40, 'x'))}),
              ElementsAre(0.5, 1, 0));
  EXPECT_THAT(rewards_of("-1*ended", {answer("a", true), answer("a", false)}), ElementsAre(-1, 0));
}

TEST(RewardsTest, AnAnswerHasThatOfTheRecordAsAWord) {
  const std::string_view number = R"({"prompt": "p", "answer": 42})", word = R"({"answer": "the cat"})";
  EXPECT_THAT(rewards_of("answer", {answer("It is 42.", false, number), answer("142", false, number),
                                    answer("is the cat", false, word), answer("bathe cats", false, word)}),
              ElementsAre(1, 0, 1, 0));
  EXPECT_THAT(rewards_of("answer", {answer("42.", false, number), answer("42.5", false, number),
                                    answer("-42", false, number), answer("3.42", false, number)}),
              ElementsAre(1, 0, 0, 0));
}

/// Whether the answer is that of the record, which is JSON.
bool is_right(const std::string& wanted, const std::string& said) {
  const std::string record = "{\"answer\": " + wanted + "}";
  return rewards_of("answer", {answer(said, false, record)}).front() > 0;
}

TEST(RewardsTest, ANumberIsRightHoweverItIsWritten) {
  for (const char* wanted : {"1000", "1e3", "1000.0", "\"1,000\"", "\"$1000\"", "\"1000 €\"",
                             "\"He earns 999 + 1.\\n#### 1,000\""})
    for (const char* said : {"It is 1000.", "1,000", "$1,000.00", "= 1e3!", "**1000**", "１０００",
                             "1\u202f000", "١٠٠٠", "USD 1000 or so", "答えは1000です", "1000%"})
      EXPECT_TRUE(is_right(wanted, said)) << wanted << ": " << said;
}

TEST(RewardsTest, ANumberOfAnotherValueIsWrong) {
  for (const char* said : {"-1000", "\u22121000", "10000", "1,0000", "1000.5", "1000.1.2", "a1000", "1000b",
                           "100,0", "x1000", "10.00", "1e4", "", "one thousand"})
    EXPECT_FALSE(is_right("1000", said)) << said;
  EXPECT_TRUE(is_right("-3", "x = \u22123"));
  EXPECT_FALSE(is_right("3", "x = -3"));
  EXPECT_TRUE(is_right("3", "10-3")) << "a hyphen between two numbers is no sign";
  EXPECT_FALSE(is_right("52", "5\u00b2")) << "a power is no digit";
  EXPECT_TRUE(is_right("0.5", "a half, .5"));
  EXPECT_TRUE(is_right("\"50 %\"", "50"));
}

TEST(RewardsTest, WordsAreComparedWithoutCaseAndHoweverTheyAreComposed) {
  EXPECT_TRUE(is_right("\"Caf\u00e9\"", "the CAFE\u0301!"));
  EXPECT_TRUE(is_right("\"stra\u00dfe\"", "Die STRASSE."));
  EXPECT_TRUE(is_right("\"\u6771\u4eac\"", "\u7b54\u3048\u306f\u6771\u4eac\u3067\u3059")) << "no spaces";
  EXPECT_FALSE(is_right("\"cafe\"", "caf\u00e9"));
  EXPECT_FALSE(is_right("\"\u00e9t\u00e9\"", "r\u00e9p\u00e9t\u00e9t\u00e9"));
  EXPECT_TRUE(is_right("\"yes\"", "\u201cYes\u201d\u3002"));
}

TEST(RewardsTest, AMatchIsOneOfCharacters) {
  EXPECT_THAT(rewards_of("matches:^.{4}$", {answer("caf\u00e9"), answer("cafes")}), ElementsAre(1, 0));
  EXPECT_THAT(rewards_of("matches:^[[:alpha:]]+$", {answer("\u00e9t\u00e9"), answer("42")}),
              ElementsAre(1, 0));
}

TEST(RewardsTest, AStopEndsACommandThatDoesNotAnswer) {
  const RewardSpec spec = must(parse_reward("command:sleep 1000; echo 1"));
  std::vector<double> rewards(1);
  const std::vector<AnswerText> answers = {answer("x")};
  const Status status = must(create_reward(spec))->add(answers, 1, rewards, [] { return true; });
  EXPECT_EQ(status.code(), Code::cancelled);
}

TEST(RewardsTest, APromptWithoutAnAnswerIsAnError) {
  const RewardSpec spec = must(parse_reward("answer"));
  std::vector<double> rewards(1);
  const std::vector<AnswerText> answers = {answer("x", false, R"({"prompt": "p"})")};
  const Status status = must(create_reward(spec))->add(answers, 1, rewards, goes_on);
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_EQ(must(create_reward(spec))->check(answers).code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'how many?' has no \"answer\""));
}

TEST(RewardsTest, AnEmptyMatchDoesNotGoOnForEver) {
  EXPECT_THAT(rewards_of("density:x*", {answer("axxb")}), ElementsAre(0.5));
}

TEST(RewardsTest, ACommandGetsLinesAndAnswersWithNumbers) {
  const char* const command =
      "command:python3 -u -c \"import sys, json\nfor line in sys.stdin:\n a = json.loads(line)\n "
      "print(len(a['answer']) + (a['record'] or {}).get('bonus', 0) + 100 * a['ended'])\"";
  EXPECT_THAT(
      rewards_of(command, {answer("abc"), answer("a\n\"", true), answer("", false, R"({"bonus": 5})")}),
      ElementsAre(3, 103, 5));
}

TEST(RewardsTest, ACommandMayWriteMoreThanAPipeHoldsBeforeItHasReadAll) {
  std::vector<AnswerText> answers(20000, answer(std::string(100, 'x')));
  const std::vector<double> rewards = rewards_of("0.5*command:while read -r line; do echo 3; done", answers);
  EXPECT_EQ(rewards, std::vector<double>(20000, 1.5));
}

TEST(RewardsTest, ACommandThatEndsOrWritesOtherThingsIsAnError) {
  const auto fails = [](const char* text) {
    const RewardSpec spec = must(parse_reward(text));
    std::vector<double> rewards(2);
    const std::vector<AnswerText> answers(2, answer("x"));
    return std::string(must(create_reward(spec))->add(answers, 1, rewards, goes_on).message());
  };
  EXPECT_THAT(fails("command:read a; echo 1"),
              HasSubstr("echo 1: it ended before it had answered everything"));
  EXPECT_THAT(fails("command:read a; echo good"), HasSubstr("it wrote 'good', which is not a number"));
  EXPECT_THAT(fails("command:read a; head -c 100000 /dev/zero; read b"),
              HasSubstr("bytes without a line feed; a line is a number of at most 4096 bytes"));
  EXPECT_THAT(fails("command:read a; printf '1\\n2\\n3\\n'; read b; sleep 1"),
              HasSubstr("it wrote more lines than there are answers"));
}

TEST(RewardsTest, OtherFormsAreErrorsThatSayWhatTheFormsAre) {
  const auto refused = [](const char* text) { return std::string(parse_reward(text).status().message()); };
  EXPECT_THAT(refused("lenght:3"), HasSubstr("the kinds of rewards are answer, matches, density, length"));
  EXPECT_THAT(refused("length"), HasSubstr("write length:N"));
  EXPECT_THAT(refused("length:none"), HasSubstr("'none' is not a number"));
  EXPECT_THAT(refused("length:0"), HasSubstr("must be at least 1"));
  EXPECT_THAT(refused("ended:3"), HasSubstr("ended has no argument"));
  EXPECT_THAT(refused("matches:("), HasSubstr("'matches:(': "));
  EXPECT_THAT(refused("x*ended"), HasSubstr("'x' is not a number"));
}

}  // namespace
}  // namespace strata
