// Several adapters of one base in one batch: each line of the input chooses its own.
#include <sstream>

#include "cli/e2e/adapters/adapter_runs.h"

namespace strata::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Which bf16 GEMM is the fastest is measured anew by each command.
constexpr const char* kWidened = "cpu.bf16_matmul=widened";

class CliNamedAdaptersE2e : public AdapterRunsE2e {
 protected:
  /// A base, and three adapters of it with other modules, ranks, scales and data.
  void make_adapters() {
    make_base("base");
    const std::vector<std::pair<std::string, Words>> settings = {
        {"a", {"adapter.rank=2", "train.seed=2"}},
        {"b", {"adapter.rank=9", "adapter.alpha=3", "adapter.targets=c_attn", "train.seed=3"}},
        {"c", {"adapter.rank_pattern=c_fc=5", "adapter.rslora=true", "train.seed=4"}}};
    for (const auto& [name, keys] : settings) {
      Words words = run_of("run-" + name, {"train.dtype=f32", "optim.lr=0.05"});
      std::erase_if(words, [&](const std::string& word) {
        return name == "b" && word == "adapter.targets=all-linear";
      });
      words.insert(words.end(), keys.begin(), keys.end());
      succeeds(words);
      succeeds({"export", "run-" + name, "--out", "adapter-" + name, "--format", "peft"});
    }
  }
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static const Words& all_adapters() {
    static const Words words = {"--adapter",   "a=adapter-a", "--adapter",
                                "b=adapter-b", "--adapter",   "c=adapter-c"};
    return words;
  }
  std::vector<json> answers(const Words& words) {
    const ProgramResult done = strata(words);
    EXPECT_EQ(done.exit_code, 0) << done.output();
    std::vector<json> lines;
    std::istringstream text(done.out);
    for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
    return lines;
  }
  /// Texts of different lengths; line i chooses `adapters[i % n]`. An empty name is null, "-" is no choice.
  std::string lines_of(const std::string& name, const Words& adapters) {
    const std::string text = read_all(file("val.txt"));
    std::string lines;
    for (std::size_t i = 0; i < 9; ++i) {
      json line = {{"context", text.substr(40 * i, 5 + 6 * i)}, {"continuation", text.substr(70 * i, 20)}};
      if (name.starts_with("prompts")) line = {{"prompt", text.substr(40 * i, 5 + 6 * i)}};
      const std::string& adapter = adapters[i % adapters.size()];
      if (adapter.empty()) line["adapter"] = nullptr;
      if (!adapter.empty() && adapter != "-") line["adapter"] = adapter;
      lines += line.dump() + "\n";
    }
    write(name, lines);
    return name;
  }
  std::vector<json> scores(const Words& model, const Words& adapters) {
    return answers(with(with({"score"}, model), {"--in", lines_of("in.jsonl", adapters)}));
  }
};

TEST_F(CliNamedAdaptersE2e, EachLineHasTheScoreOfTheSameBatchUnderItsAdapterAlone) {
  make_adapters();
  for (const Words& model : {Words{"base"}, Words{"base", "train.dtype=bf16", kWidened},
                             Words{"base", "train.base=nf4", "train.dtype=bf16", kWidened}}) {
    const std::vector<json> mixed = scores(with(model, all_adapters()), {"a", "b", "c", ""});
    ASSERT_EQ(mixed.size(), 9u);
    const std::vector<std::vector<json>> alone = {
        scores(with(model, {"--adapter", "a=adapter-a"}), {"-"}),
        scores(with(model, {"--adapter", "b=adapter-b"}), {"b"}),
        scores(with(model, {"--adapter", "other=adapter-c"}), {"other"}), scores(model, {"-"})};
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      EXPECT_EQ(mixed[i], alone[i % 4][i]) << model.back() << ", line " << i;
      for (std::size_t other = 0; other < 4; ++other)
        EXPECT_TRUE(other == i % 4 || alone[other][i] != mixed[i]) << "adapters differ in what they compute";
    }
  }
}

// An adapter that is part of the model has other kernels, and the same values but for rounding.
TEST_F(CliNamedAdaptersE2e, ANamedAdapterIsTheAdapterOfTheModel) {
  make_adapters();
  for (const std::string name : {"a", "b", "c"}) {
    const auto named = scores({"base", "--adapter", name + "=adapter-" + name}, {"-"});
    const auto only = scores({"base", "--adapter", "adapter-" + name}, {"-"});
    for (std::size_t i = 0; i < named.size(); ++i)
      EXPECT_NEAR(named[i]["logprob"].get<double>(), only[i]["logprob"].get<double>(), 1e-4) << name;
  }
}

TEST_F(CliNamedAdaptersE2e, TextsAreThoseUnderEachAdapterAloneForAnyBudgets) {
  make_adapters();
  const Words greedy = {"--tokens", "12", "--temperature", "0", "--json", "--prompts"};
  const auto texts = [&](const Words& model, const Words& adapters) {
    std::vector<json> lines =
        answers(with(with({"generate"}, model), with(greedy, {lines_of("prompts.jsonl", adapters)})));
    return lines;
  };
  const std::vector<json> mixed = texts(with({"base"}, all_adapters()), {"a", "b", "c", ""});
  EXPECT_EQ(mixed[1]["adapter"], "b");
  EXPECT_TRUE(mixed[3]["adapter"].is_null());
  EXPECT_EQ(texts(with({"base", "memory.device=2MiB", "offload.policy=pinned"}, all_adapters()),
                  {"a", "b", "c", ""}),
            mixed);
  std::size_t different = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    const std::string name(1, static_cast<char>('a' + k));
    const std::vector<json> alone = texts({"base", "--adapter", name + "=adapter-" + name}, {"-"});
    for (std::size_t i = 0; i < mixed.size(); ++i)
      if (i % 4 == k)
        EXPECT_EQ(mixed[i], alone[i]) << name << ", prompt " << i;
      else
        different += mixed[i]["ids"] != alone[i]["ids"] ? 1 : 0;
  }
  EXPECT_GT(different, 0u);
  // Prompts that do not choose go through the default, which of several is none.
  const auto plain = texts({"base"}, {"-"});
  const auto by_default = texts(with({"base"}, all_adapters()), {"-"});
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(by_default[i]["ids"], plain[i]["ids"]);
  EXPECT_EQ(texts(with(with({"base"}, all_adapters()), {"--default-adapter", "b"}), {"a", "-", "c", ""}),
            mixed);
}

TEST_F(CliNamedAdaptersE2e, ARunCanBeTheBase) {
  make_adapters();
  // The run that the base was exported from has the same values.
  const auto over_folder = scores(with({"base"}, all_adapters()), {"a", "c", ""});
  const auto over_run = scores(with({"run-of-base"}, all_adapters()), {"a", "c", ""});
  ASSERT_EQ(over_run.size(), over_folder.size());
  for (std::size_t i = 0; i < over_run.size(); ++i)
    EXPECT_NEAR(over_run[i]["logprob"].get<double>(), over_folder[i]["logprob"].get<double>(), 1e-4) << i;
  EXPECT_THAT(refused(with({"score", "run-a", "--in", "in.jsonl"}, all_adapters())),
              HasSubstr("run-a is a run of adapters; named adapters need a model without any"));
  EXPECT_THAT(refused({"score", "run-of-base", "--in", "in.jsonl", "train.base=nf4"}),
              HasSubstr("run-of-base is a run, whose checkpoints have whole values"));
}

TEST_F(CliNamedAdaptersE2e, MistakesAreReportedTogether) {
  make_adapters();
  const auto refusal = [&](const Words& words) {
    return refused(with({"generate", "base", "--tokens", "2"}, words));
  };
  EXPECT_THAT(refusal({"--adapter", "a=adapter-a", "--adapter", "a=adapter-b", "--adapter", "adapter-c",
                       "--adapter", "x y=adapter-c"}),
              AllOf(HasSubstr("--adapter a=adapter-b: a is the name of adapter-a already"),
                    HasSubstr("--adapter adapter-c: each of several adapters needs a name"),
                    HasSubstr("--adapter x y=adapter-c: the name of an adapter consists of letters")));
  // Folders that are none of an adapter, and adapters of another model.
  succeeds(tiny("train", {"--out", "wide", "train.steps=1", "train.dtype=f32", "model.hidden=96"}));
  succeeds({"export", "wide", "--out", "wide-base"});
  EXPECT_THAT(
      refusal({"--adapter", "a=adapter-a", "--adapter", "gone=nowhere", "--adapter", "empty=base"}),
      AllOf(HasSubstr("adapter gone: nowhere has no adapter_config.json"),
            HasSubstr("adapter empty: base has no adapter_config.json"), Not(HasSubstr("adapter a:"))));
  EXPECT_THAT(strata(with({"generate", "wide-base", "--tokens", "2"}, all_adapters())).err,
              AllOf(HasSubstr("adapter a: "), HasSubstr("adapter b: "), HasSubstr("adapter c: "),
                    HasSubstr("but the model needs")));
  write("prompts.jsonl",
        "{\"prompt\": \"She \", \"adapter\": \"aa\"}\n{\"prompt\": \"He \"}\n{\"prompt\": \"It \", "
        "\"adapter\": "
        "\"law\"}\n");
  EXPECT_THAT(refusal(with({"--prompts", "prompts.jsonl"}, all_adapters())),
              AllOf(HasSubstr("prompt 1: no adapter is named 'aa'; the adapters are a, b, c"),
                    HasSubstr("prompt 3: no adapter is named 'law'")));
  EXPECT_THAT(refusal({"--prompts", "prompts.jsonl"}),
              HasSubstr("prompt 1: no adapter is named 'aa'; load it with --adapter aa=DIR"));
  EXPECT_THAT(refusal(with({"--default-adapter", "d"}, all_adapters())),
              HasSubstr("--default-adapter: no adapter is named 'd'"));
  EXPECT_THAT(refusal({"--default-adapter", "d", "--adapter", "adapter-a"}),
              HasSubstr("--default-adapter d: there are no named adapters"));
  write("in.jsonl",
        "{\"text\": \"She\", \"adapter\": \"b\"}\n{\"text\": \"She\", \"adapter\": 7}\n"
        "{\"text\": \"She\", \"adapter\": \"d\"}\n");
  const ProgramResult scored = strata(with({"score", "base", "--in", "in.jsonl"}, all_adapters()));
  EXPECT_EQ(scored.exit_code, 2);
  EXPECT_THAT(scored.out,
              AllOf(HasSubstr("\"logprob\""), HasSubstr("line 2: 'adapter' is neither a name nor null"),
                    HasSubstr("line 3: no adapter is named 'd'; the adapters are a, b, c")));
}

}  // namespace
}  // namespace strata::test
