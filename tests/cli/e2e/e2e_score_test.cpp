// `strata score` agrees with eval and generate, and answers over a pipe that stays open.
#include <fcntl.h>

#include <bit>
#include <cmath>
#include <sstream>

#include "cli/e2e/e2e_fixture.h"

namespace strata::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CliScoreE2e : public CliE2e {
 protected:
  void succeeds(const Words& words) const {
    const ProgramResult done = strata(words);
    ASSERT_EQ(done.exit_code, 0) << done.err;
  }
  void train(const std::string& out, const Words& words = {}) const {
    Words all = {"--out", out, "train.steps=6", "train.dtype=f32", "log.sample_every=0"};
    all.insert(all.end(), words.begin(), words.end());
    succeeds(tiny("train", all));
  }
  static std::string lines_of(const std::vector<json>& requests) {
    std::string text;
    for (const json& request : requests) text += request.dump() + "\n";
    return text;
  }
  static std::vector<json> parsed(const std::string& text) {
    std::vector<json> all;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
  ProgramResult score(const Words& words, const std::string& input) {
    write("in.jsonl", input);
    Words all = {"score"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--in", "in.jsonl"});
    return strata(all);
  }
  std::vector<json> scores(const Words& words, const std::vector<json>& requests) {
    const ProgramResult done = score(words, lines_of(requests));
    EXPECT_EQ(done.exit_code, 0) << done.err << done.out;
    return parsed(done.out);
  }
  std::vector<int> ids_of(const std::string& text) const {
    std::istringstream words(strata({"tokenizer", "encode", "-t", "run/tokenizer.json", text}).out);
    std::vector<int> ids;
    for (int id = 0; words >> id;) ids.push_back(id);
    return ids;
  }
  /// Contexts and continuations of many lengths, some longer than the model's context of 32.
  std::vector<json> pairs() const {
    const std::string text = read_all(file("val.txt"));
    std::vector<json> all;
    for (std::size_t i = 0; i < 40; ++i)
      all.push_back({{"context", text.substr(50 * i, 3 * i)},
                     {"continuation", text.substr(53 * i, 8 + 5 * (i % 5))},
                     {"id", i}});
    all.push_back({{"text", text.substr(0, 600)}});
    return all;
  }
};

TEST_F(CliScoreE2e, TheSumOfLogProbabilitiesIsTheLossOfEval) {
  train("run");
  const json measured = json::parse(strata({"eval", "run", "--data", "val.txt", "--json"}).out);
  const std::vector<int> ids = ids_of(read_all(file("val.txt")));
  std::vector<json> requests;
  const auto sequences = measured["sequences"].get<std::size_t>();
  for (std::size_t i = 0; i < sequences; ++i) {
    const auto at = ids.begin() + static_cast<std::ptrdiff_t>(32 * i);
    requests.push_back(
        {{"context_ids", std::vector<int>{*at}}, {"continuation_ids", std::vector<int>(at + 1, at + 33)}});
  }
  double sum = 0;
  std::size_t tokens = 0;
  for (const json& line : scores({"run"}, requests)) {
    sum += line["logprob"].get<double>();
    tokens += line["tokens"].get<std::size_t>();
  }
  EXPECT_EQ(tokens, measured["tokens"].get<std::size_t>());
  const auto loss = std::bit_cast<double>(std::stoull(measured["loss_bits"].get<std::string>(), nullptr, 16));
  EXPECT_NEAR(-sum / static_cast<double>(tokens), loss, 1e-5);
}

TEST_F(CliScoreE2e, GreedyIsWhatGenerateProducesAtTemperatureZero) {
  train("run");
  const json text = json::parse(
      strata({"generate", "run", "--prompt", "She was", "--tokens", "12", "--temperature", "0", "--json"})
          .out);
  json request = {{"context_ids", text["prompt_ids"]}, {"continuation_ids", text["ids"]}};
  json other = request;
  other["continuation_ids"].back() = (text["ids"].back().get<int>() + 1) % 512;
  const std::vector<json> answers = scores({"run"}, {request, other});
  EXPECT_EQ(answers[0]["greedy"], true);
  EXPECT_EQ(answers[0]["tokens"], 12);
  EXPECT_EQ(answers[1]["greedy"], false);
  EXPECT_LT(answers[1]["logprob"], answers[0]["logprob"]);
}

TEST_F(CliScoreE2e, NeitherBatchNorBudgetsChangeAScore) {
  train("run");
  const std::vector<json> all = scores({"run"}, pairs());
  ASSERT_EQ(all.size(), 41U);
  EXPECT_EQ(all[7]["id"], 7);
  EXPECT_GT(all[40]["tokens"], 64) << "a text of several windows";
  for (const Words& words : {Words{"run", "--batch", "1"}, Words{"run", "--batch", "3"},
                             Words{"run", "--batch", "16", "memory.device=unlimited"},
                             Words{"run", "offload.policy=nvme", "memory.nvme=64MiB"}})
    EXPECT_EQ(scores(words, pairs()), all) << words.back();
  const std::vector<json> one_by_one = scores({"run"}, {pairs()[9]});
  EXPECT_EQ(one_by_one[0], all[9]);
  EXPECT_THAT(score({"run"}, lines_of(pairs())).err,
              AllOf(HasSubstr("41 lines with "), HasSubstr(" cut on the left to the model's 32 tokens")));
}

TEST_F(CliScoreE2e, TheTextOfAPairIsScoredAsItsIds) {
  train("run");
  const std::vector<int> context = ids_of("Elizabeth was"), whole = ids_of("Elizabeth was very happy");
  const auto split = static_cast<std::ptrdiff_t>(context.size());
  const json ids = {{"context_ids", context},
                    {"continuation_ids", std::vector<int>(whole.begin() + split, whole.end())}};
  const std::vector<json> both =
      scores({"run"}, {{{"context", "Elizabeth was "}, {"continuation", "very happy"}}, ids});
  EXPECT_EQ(both[0], both[1]);
}

TEST_F(CliScoreE2e, AFolderAndItsAdapterAreScoredLikeTheRunThatMadeThem) {
  train("first");
  succeeds({"export", "first", "--out", "base"});
  train("run", {"--init", "base", "adapter.method=lora", "adapter.targets=all-linear", "optim.lr=1e-2"});
  succeeds({"export", "run", "--out", "adapter"});
  const std::vector<json> base = scores({"base"}, pairs()),
                          adapted = scores({"base", "--adapter", "adapter"}, pairs());
  EXPECT_EQ(scores({"first"}, pairs()), base);
  EXPECT_EQ(scores({"run"}, pairs()), adapted);
  EXPECT_GT(std::abs(adapted[9]["logprob"].get<double>() - base[9]["logprob"].get<double>()), 1e-3);
}

TEST_F(CliScoreE2e, ALineWithAnErrorIsAnsweredAndTheOthersAreScored) {
  train("run");
  const json good = {{"context", "She "}, {"continuation", "was"}};
  std::string longer = R"({"context_ids": [1], "id": 5, "continuation_ids": [2)";
  for (int i = 0; i < 32; ++i) longer += ", 2";
  const ProgramResult done =
      score({"run"}, good.dump() + "\nnot json\n\n" + good.dump() + "\n" + longer + "]}\n" +
                         R"({"context_ids": [512], "continuation_ids": [1]})" + "\n" + R"({"text": ""})");
  EXPECT_EQ(done.exit_code, 2);
  const std::vector<json> lines = parsed(done.out);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0], lines[2]);
  EXPECT_THAT(lines[1]["error"].get<std::string>(), HasSubstr("line 2: not JSON"));
  EXPECT_EQ(lines[3]["error"],
            "line 5: the continuation has 33 tokens, but the model reads at most 32 at once");
  EXPECT_EQ(lines[3]["id"], 5);
  EXPECT_THAT(lines[4]["error"].get<std::string>(),
              HasSubstr("line 6: the context: token 512 has no row in the model, which has 512 tokens"));
  EXPECT_EQ(lines[5]["error"], "line 7: 'text' is empty");
  EXPECT_THAT(done.err, HasSubstr("4 lines with an error"));
}

TEST_F(CliScoreE2e, MistakesEndTheCommandBeforeItScores) {
  train("run");
  const auto refused = [&](const Words& words, int code) {
    const ProgramResult done = strata(words);
    EXPECT_EQ(done.exit_code, code) << done.output();
    EXPECT_EQ(done.out, "");
    return done.err;
  };
  EXPECT_THAT(refused({"score", "nowhere"}, 2), HasSubstr("nowhere does not exist"));
  EXPECT_THAT(refused({"score", "run", "--in", "missing.jsonl"}, 2), HasSubstr("missing.jsonl"));
  EXPECT_THAT(refused({"score", "run", "--in", "val.txt", "--out", "./val.txt"}, 2),
              HasSubstr("is val.txt, which is read"));
  EXPECT_THAT(refused({"score", "run", "--context", "33"}, 2),
              HasSubstr("--context 33: the model supports 32"));
  EXPECT_THAT(refused({"score", "run", "--out", "none/out.jsonl"}, 5), HasSubstr("none/out.jsonl"));
  EXPECT_THAT(
      refused({"score", "run", "memory.device=100KiB"}, 3),
      AllOf(HasSubstr("the keys and values of 8 sequences of 32 tokens need"), HasSubstr("shortfall")));
}

TEST_F(CliScoreE2e, ResultsAreWrittenToAFileOrRefusedIfTheOutputIsFull) {
  train("run");
  const ProgramResult printed = score({"run"}, lines_of(pairs()));
  EXPECT_EQ(score({"run", "--out", "out.jsonl"}, lines_of(pairs())).out, "");
  EXPECT_EQ(read_all(file("out.jsonl")), printed.out);
  ProgramOptions full = options_;
  full.out = ProgramOptions::Out::full;
  const ProgramResult failed = strata({"score", "run", "--in", "in.jsonl"}, full);
  EXPECT_EQ(failed.exit_code, 5);
  EXPECT_THAT(failed.err, HasSubstr("the output could not be written"));
}

TEST_F(CliScoreE2e, APipeIsAnsweredWhileItStaysOpen) {
  train("run");
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  ProgramOptions piped = options_;
  piped.before_exec = [&] { return ::dup2(ends[0], STDIN_FILENO) == STDIN_FILENO; };
  RunningProgram program(STRATA_PROGRAM, {"score", "run", "--batch", "16"}, piped);
  ::close(ends[0]);
  const auto send = [&](const std::string& text) {
    EXPECT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  for (const std::string id : {"11", "12"}) {
    send(R"({"context": "She ", "continuation": "was", "id": )" + id + "}\n{\"context\"");
    EXPECT_TRUE(program.wait_for("\"id\": " + id + "}"))
        << "fewer lines than --batch, and half a line after them";
    send(": \"He\", \"continuation\": \" was\"}\n");
  }
  ::close(ends[1]);
  const ProgramResult done = program.finish();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(parsed(done.out).size(), 4U);
}

}  // namespace
}  // namespace strata::test
