// Tests what the command says about itself: completions, manual pages, keys.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

#include <strata/config/train_schema.h>

#include "describe/command_reference.h"
#include "describe/complete.h"
#include "describe/describe_keys.h"
#include "describe/man_page.h"

namespace strata::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> completed(const std::vector<std::string>& words) {
  std::vector<std::string> found;
  for (const Completion& each : complete(command_help(), words)) found.push_back(each.word);
  return found;
}

TEST(Completion, OfTheFirstWordAreVerbs) {
  EXPECT_THAT(completed({"t"}), AllOf(Contains("train"), Contains("tokenizer"), Not(Contains("plan"))));
  EXPECT_THAT(completed({""}), AllOf(Contains("doctor"), Not(Contains("complete")))) << "it is for scripts";
}

TEST(Completion, OfAVerbAreItsActionsOptionsAndKeys) {
  EXPECT_THAT(completed({"config", "s"}), AllOf(Contains("show"), Contains("schema")));
  EXPECT_THAT(completed({"train", "--res"}), ::testing::ElementsAre("--resume"));
  EXPECT_THAT(completed({"config", "show", "--or"}), ::testing::ElementsAre("--origin"));
  EXPECT_THAT(completed({"train", "mem"}), ::testing::ElementsAre("memory."));
  EXPECT_THAT(completed({"train", "run.toml", "memory.pin"}), ::testing::ElementsAre("memory.pinned="));
  EXPECT_THAT(completed({"doctor", "mem"}), IsEmpty()) << "it takes no keys";
}

TEST(Completion, OfValuesAreTheWordsThatAreKnown) {
  EXPECT_THAT(completed({"train", "optim.name=l"}),
              ::testing::UnorderedElementsAre("optim.name=lion", "optim.name=lamb"));
  EXPECT_THAT(completed({"train", "train.fp8="}), Contains("train.fp8=true"));
  EXPECT_THAT(completed({"plan", "--machine", "h"}), AllOf(Contains("h200"), Not(Contains("gh200"))));
  EXPECT_THAT(completed({"train", "--preset", ""}), Contains("austen-tiny"));
  EXPECT_THAT(completed({"completions", ""}), IsEmpty())
      << "an argument, which the shell may complete as a file";
  EXPECT_THAT(completed({"export", "run", "--format", "p"}), ::testing::ElementsAre("peft"));
}

TEST(ConfigSchemaJson, HasEveryKeyWithWhatItAccepts) {
  const auto schema = nlohmann::json::parse(config_json_schema(train_schema()));
  for (const KeySpec& key : train_schema().keys) {
    const auto& section = schema["properties"][std::string(key.section)];
    EXPECT_EQ(section["additionalProperties"], false);
    ASSERT_TRUE(section["properties"].contains(std::string(key.name))) << key.section << "." << key.name;
    EXPECT_FALSE(section["properties"][std::string(key.name)]["anyOf"].empty()) << key.name;
  }
  const auto& dtype = schema["properties"]["train"]["properties"]["dtype"]["anyOf"];
  EXPECT_THAT(dtype.dump(), AllOf(HasSubstr("\"bf16\""), HasSubstr("\"auto\"")));
}

TEST(ExplainKey, SaysWhatIsKnownOfItOrNamesTheMostSimilar) {
  EXPECT_THAT(must(explain_key(train_schema(), "memory.device")),
              AllOf(HasSubstr("memory.device"), HasSubstr("STRATA_MEMORY_DEVICE"), HasSubstr("unlimited")));
  EXPECT_THAT(must(explain_key(train_schema(), "parallel")),
              AllOf(HasSubstr("parallel.tp\n"), HasSubstr("parallel.zero\n")));
  const Status unknown = explain_key(train_schema(), "memory.devise").status();
  EXPECT_EQ(unknown.code(), Code::invalid);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("memory.device"));
  EXPECT_THAT(std::string(explain_key(train_schema(), "grad_accum").status().message()),
              HasSubstr("train.grad_accum"));
}

std::string page_of_documentation(const char* name) {
  std::ifstream file(std::string(STRATA_SOURCE_DIR "/docs/").append(name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(KeyReference, OfTheDocumentationIsThatOfTheSchema) {
  EXPECT_EQ(page_of_documentation("configuration.md"), key_reference(train_schema()))
      << "strata config reference > docs/configuration.md";
}

TEST(CommandReference, OfTheDocumentationIsThatOfTheCommand) {
  EXPECT_EQ(page_of_documentation("commands.md"), command_reference(command_help()))
      << "strata man --markdown > docs/commands.md";
}

TEST(CommandReference, SaysDefaultsAndChoicesAndNeedsNoBars) {
  const std::string text = command_reference(command_help());
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("| `--temperature VALUE` | Sampling temperature; 0 = always the most likely token "
                      "(default: `0.8`) |\n"),
            HasSubstr("| `-t`, `--tokenizer VALUE` | "), HasSubstr("`--machine NAME or FILE`"),
            HasSubstr("```text\nstrata export [OPTIONS] RUN|FOLDER [key=value ...]\n```"),
            HasSubstr("`bash`, `zsh`, `fish`"), HasSubstr("\n### strata config explain\n")));
  EXPECT_THAT(text, Not(HasSubstr("(default: `0`)"))) << "which stands for: not given";
}

TEST(ManPage, HasEveryVerbOptionAndKey) {
  const CommandHelp strata = command_help();
  const std::string page = man_page(strata, "", "1.2.3");
  EXPECT_THAT(page, AllOf(HasSubstr(".TH STRATA 1 \"\" \"strata 1.2.3\""), HasSubstr("memory.pinned"),
                          HasSubstr(".SH EXIT STATUS")));
  for (const CommandHelp& verb : strata.commands) {
    EXPECT_THAT(page, HasSubstr(verb.name));
    const std::string of_verb = man_page(strata, verb.name, "1.2.3");
    for (const OptionHelp& option : verb.options)
      for (const std::string& name : option.names) {
        std::string escaped;
        for (const char c : name) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
        EXPECT_THAT(of_verb, HasSubstr(escaped)) << verb.name;
      }
  }
}

}  // namespace
}  // namespace strata::cli
