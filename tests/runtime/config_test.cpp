#include <strata/runtime/config/config.h>

#include <unistd.h>

#include <cstdio>
#include <cmath>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr KeySpec kKeys[] = {
    {.section = "model", .name = "preset", .type = KeyType::text, .default_text = "", .doc = "a preset"},
    {.section = "model",
     .name = "layers",
     .type = KeyType::integer,
     .default_text = "2",
     .doc = "layers",
     .example = "model.layers=6",
     .min = 1,
     .max = 1000},
    {.section = "train", .name = "files", .type = KeyType::text_list, .default_text = "", .doc = "files"},
    {.section = "train", .name = "mix", .type = KeyType::number_list, .default_text = "", .doc = "weights"},
    {.section = "train",
     .name = "max_time",
     .type = KeyType::seconds,
     .default_text = "none",
     .doc = "time",
     .unlimited_word = "none"},
    {.section = "train",
     .name = "trace",
     .type = KeyType::steps,
     .default_text = "false",
     .doc = "steps to trace"},
    {.section = "optim",
     .name = "lr",
     .type = KeyType::number,
     .default_text = "0.001",
     .doc = "rate",
     .min = 0},
    {.section = "optim",
     .name = "schedule",
     .type = KeyType::choice,
     .default_text = "cosine",
     .doc = "shape",
     .choices = "cosine|linear|constant"},
    {.section = "memory",
     .name = "device",
     .type = KeyType::bytes,
     .default_text = "auto",
     .doc = "budget",
     .allows_auto = true},
    {.section = "memory",
     .name = "nvme",
     .type = KeyType::bytes,
     .default_text = "0",
     .doc = "budget",
     .unlimited_word = "unlimited"},
    {.section = "io", .name = "direct", .type = KeyType::boolean, .default_text = "true", .doc = "O_DIRECT"},
};
constexpr PresetValue kSmall[] = {
    {"model.layers", "4"}, {"memory.device", "32MiB"}, {"train.files", "a.txt,b.txt"}};
constexpr ConfigPreset kPresets[] = {{"small", "four layers", kSmall}};
constexpr EnvName kEnvNames[] = {{"STRATA_CONFIG", ""}, {"STRATA_SHAPE", "optim.schedule"}};
const ConfigSchema kSchema = {kKeys, kPresets, "model.preset", kEnvNames};

ConfigSources toml(std::string text) { return {.file = "run.toml", .file_text = std::move(text)}; }
ConfigSources json_sources(std::string text) { return {.file = "run.json", .file_text = std::move(text)}; }
Result<ConfigTree> build(const ConfigSources& sources) { return ConfigTree::build(kSchema, sources); }
std::string problems(const ConfigSources& sources) { return std::string(build(sources).status().message()); }
Result<ConfigTree> with_arguments(std::vector<std::string> arguments) {
  return build({.arguments = std::move(arguments)});
}
std::string argument_problems(std::vector<std::string> arguments) {
  return problems({.arguments = std::move(arguments)});
}

TEST(ConfigTest, WithNoSourcesEveryKeyHasItsDefault) {
  const ConfigTree tree = must(build({}));
  EXPECT_EQ(tree.integer("model.layers"), 2);
  EXPECT_EQ(tree.entry("model.layers").origin, "default");
  EXPECT_TRUE(tree.is_auto("memory.device"));
  EXPECT_TRUE(tree.texts("train.files").empty());
}

TEST(ConfigTest, EachLayerOverridesTheOneBelow) {
  ConfigSources sources = toml("[model]\npreset = \"small\"\n");
  EXPECT_EQ(must(build(sources)).integer("model.layers"), 4);
  EXPECT_EQ(must(build(sources)).entry("model.layers").origin, "preset small");
  *sources.file_text += "layers = 5\n";
  EXPECT_EQ(must(build(sources)).integer("model.layers"), 5);
  EXPECT_EQ(must(build(sources)).entry("model.layers").origin, "file run.toml:3");
  sources.environment = {"STRATA_MODEL_LAYERS=6", "HOME=/root"};
  EXPECT_EQ(must(build(sources)).integer("model.layers"), 6);
  EXPECT_EQ(must(build(sources)).entry("model.layers").origin, "environment STRATA_MODEL_LAYERS");
  sources.arguments = {"model.layers=7"};
  EXPECT_EQ(must(build(sources)).integer("model.layers"), 7);
  EXPECT_EQ(must(build(sources)).entry("model.layers").origin, "argument model.layers=7");
}

TEST(ConfigTest, TheCommandLinesPresetOverridesTheFilesPresetButNotItsValues) {
  ConfigSources sources = toml("[model]\npreset = \"nothing-like-it\"\n[memory]\ndevice = \"1MiB\"\n");
  sources.preset = "small";
  const ConfigTree tree = must(build(sources));
  EXPECT_EQ(tree.integer("model.layers"), 4);
  EXPECT_EQ(tree.bytes("memory.device"), kMiB);
}

TEST(ConfigTest, JsonHoldsTheSameTreeAsToml) {
  const auto from_toml = must(
      build(toml("[optim]\nlr = 2e-3\n[train]\nfiles = [\"a, b\"]\nmix = [1, 0.5]\nmax_time = \"90s\"\n")));
  const auto from_json = must(build(json_sources(
      R"({"optim": {"lr": 2e-3}, "train": {"files": ["a, b"], "mix": [1, 0.5], "max_time": "90s"}})")));
  EXPECT_EQ(from_toml.to_toml(false), from_json.to_toml(false));
  EXPECT_EQ(from_json.texts("train.files"), std::vector<std::string>{"a, b"});
  EXPECT_EQ(from_json.numbers("train.mix"), (std::vector<double>{1, 0.5}));
  EXPECT_DOUBLE_EQ(from_json.seconds("train.max_time"), 90);
}

TEST(ConfigTest, JsonKeysKnowTheirLine) {
  const auto tree = must(build(json_sources("{\n  \"model\": {\n    \"layers\":\n 3\n  }\n}\n")));
  EXPECT_EQ(tree.entry("model.layers").origin, "file run.json:3");
}

TEST(ConfigTest, AllProblemsOfAllLayersAreReportedWithTheirOrigins) {
  ConfigSources sources = toml("[model]\nlayer = 3\n[optim]\nlr = \"fast\"\n[memori]\ndevice = 1\n");
  sources.environment = {"STRATA_MEMORY_DEVISE=1MiB"};
  sources.arguments = {"optim.schedule=cosin", "lr=3", "nonsense"};
  const std::string text = problems(sources);
  EXPECT_EQ(text,
            "file run.toml:2: unknown key 'model.layer'; did you mean 'model.layers'?\n"
            "file run.toml:4: optim.lr expects a number, got the string 'fast'\n"
            "file run.toml:6: unknown section 'memori' of 'memori.device'; did you mean 'memory.device'?\n"
            "environment STRATA_MEMORY_DEVISE: unknown variable; did you mean 'STRATA_MEMORY_DEVICE'?\n"
            "argument nonsense: is not section.key=value\n"
            "argument optim.schedule=cosin: optim.schedule = 'cosin' is not one of cosine, linear, constant; "
            "did you mean 'cosine'?\n"
            "argument lr=3: unknown key 'lr'; did you mean 'optim.lr'?");
}

TEST(ConfigTest, AnOverriddenValueIsCheckedToo) {
  ConfigSources sources = toml("[model]\nlayers = -1\n");
  sources.arguments = {"model.layers=3"};
  EXPECT_THAT(
      problems(sources),
      HasSubstr("file run.toml:2: model.layers = '-1' is outside 1 to 1000 (example: model.layers=6)"));
}

TEST(ConfigTest, AKeyInTheWrongSectionIsPointedToItsOwn) {
  EXPECT_THAT(argument_problems({"train.lr=1"}), HasSubstr("did you mean 'optim.lr'?"));
}

TEST(ConfigTest, AnUnknownPresetNamesTheKnownOnes) {
  EXPECT_THAT(problems({.preset = "smal"}),
              HasSubstr("there is no preset 'smal'; known: small; did you mean 'small'?"));
}

TEST(ConfigTest, AKeyGivenTwiceIsRefusedInEveryLayer) {
  EXPECT_THAT(argument_problems({"optim.lr=1", "optim.lr=2"}), HasSubstr("optim.lr: is given 2 times"));
  EXPECT_THAT(problems(json_sources(R"({"optim": {"lr": 1, "lr": 2}})")),
              HasSubstr("optim.lr is given twice"));
  EXPECT_THAT(problems(toml("[optim]\nlr = 1\nlr = 2\n")), StartsWith("file run.toml:3: not TOML"));
}

TEST(ConfigTest, KeysOutsideASectionAreRefused) {
  EXPECT_THAT(problems(toml("lr = 1\n")), HasSubstr("file run.toml:1: 'lr' is outside a section"));
  EXPECT_THAT(problems(json_sources("{\"lr\": 1}")), HasSubstr("file run.json:1: 'lr' is outside a section"));
  EXPECT_THAT(problems(json_sources("[1]")), HasSubstr("the file must be a JSON object"));
}

TEST(ConfigTest, AnEmptyUnknownSectionIsRefusedAndAnEmptyKnownOneIsNot) {
  EXPECT_THAT(problems(toml("[modle]\n")), HasSubstr("unknown section 'modle'; did you mean 'model'?"));
  EXPECT_THAT(problems(json_sources("{\"modle\": {}}")),
              HasSubstr("unknown section 'modle'; did you mean 'model'?"));
  EXPECT_TRUE(build(toml("[model]\n")).has_value());
}

TEST(ConfigTest, ADamagedFileNamesTheLine) {
  EXPECT_THAT(problems(toml("[model]\nlayers = \n")), StartsWith("file run.toml:2: not TOML"));
  EXPECT_THAT(problems(json_sources("{\n\"model\": {\n\"layers\" 3}}")),
              StartsWith("file run.json:3: not JSON"));
  EXPECT_THAT(problems(json_sources("{\"model\": {\"layers\": 3}")), HasSubstr("not JSON"));
  EXPECT_THAT(problems(toml(std::string("\xff\xfe\x00", 3))), HasSubstr("not TOML"));
  // Characters between the ranges of toml++'s tables, a case that it marks as unreachable.
  for (const char* character : {"\u00a1", "\u05d0", "\u4eca", "\ufefb", "\U0001F600"})
    EXPECT_THAT(problems(toml(str("[model]\n0", character, "s\n"))), HasSubstr("not TOML")) << character;
}

TEST(ConfigTest, NestedTablesAndListsAreRefusedWithoutHarm) {
  EXPECT_THAT(problems(toml("[model.layers]\nx = 1\n")),
              HasSubstr("model.layers expects an integer, got a table"));
  EXPECT_THAT(problems(json_sources(R"({"model": {"layers": {"x": [1, {"y": 2}]}}})")),
              HasSubstr("got a table"));
  EXPECT_THAT(problems(json_sources(R"({"train": {"files": [["a"], {"b": 1}]}})")),
              HasSubstr("train.files expects a list of strings, got a list in it"));
  EXPECT_THAT(problems(json_sources(std::string(100000, '['))), HasSubstr("run.json"));
  EXPECT_THAT(problems(toml("x = " + std::string(100000, '['))), HasSubstr("run.toml"));
}

TEST(ConfigTest, AFilePastTheLimitIsRefusedUnread) {
  EXPECT_THAT(problems(toml(std::string((1 << 20) + 1, '#'))), HasSubstr("larger than 1048576 bytes"));
}

TEST(ConfigTest, AMissingFileIsReportedBesideOtherProblems) {
  EXPECT_EQ(build({.file = "/nowhere/run.toml"}).status().code(), Code::not_found);
  const Status both = build({.file = "/nowhere/run.toml", .arguments = {"optim.lr=x"}}).status();
  EXPECT_THAT(both.message(), StartsWith("file: /nowhere/run.toml: No such file"));
  EXPECT_THAT(both.message(), HasSubstr("optim.lr = 'x' is not a finite number"));
  EXPECT_THAT(build({.file = "/"}).status().message(), HasSubstr("is a directory"));
}

TEST(ConfigTest, AFileIsReadFromDisk) {
  const std::string path = str("/tmp/strata_config_test_", ::getpid(), ".toml");
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("[model]\nlayers = 9\n", file);
  std::fclose(file);
  EXPECT_EQ(must(build({.file = path})).integer("model.layers"), 9);
  std::remove(path.c_str());
}

TEST(ConfigTest, TypesAreStrictInFiles) {
  EXPECT_THAT(problems(toml("[model]\nlayers = \"3\"\n")),
              HasSubstr("expects an integer, got the string '3'"));
  EXPECT_THAT(problems(toml("[model]\nlayers = 3.0\n")), HasSubstr("expects an integer"));
  EXPECT_THAT(problems(toml("[io]\ndirect = 1\n")), HasSubstr("expects true or false"));
  EXPECT_THAT(problems(toml("[train]\nfiles = \"a\"\n")), HasSubstr("expects a list of strings"));
  EXPECT_THAT(problems(toml("[train]\nfiles = [1]\n")),
              HasSubstr("expects a list of strings, got '1' in it"));
  EXPECT_THAT(problems(toml("[optim]\nlr = inf\n")), HasSubstr("not a finite number"));
  EXPECT_THAT(problems(json_sources("{\"io\": {\"direct\": null}}")), HasSubstr("got null"));
}

TEST(ConfigTest, ListsOnTheCommandLineAreCommaSeparatedOrArrays) {
  EXPECT_EQ(must(with_arguments({"train.files=a, b"})).texts("train.files"),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(must(with_arguments({"train.files=[\"a,b\"]"})).texts("train.files"),
            (std::vector<std::string>{"a,b"}));
  EXPECT_THAT(argument_problems({"train.files=a,,b"}), HasSubstr("empty item"));
  EXPECT_THAT(argument_problems({"train.files=a,"}), HasSubstr("ends with a comma"));
  EXPECT_THAT(argument_problems({"train.files=[\"a\"]\nx = 1"}), HasSubstr("starts like a list"));
}

TEST(ConfigTest, UnlimitedWordsHaveTheirOwnValues) {
  const ConfigTree tree = must(with_arguments({"memory.nvme=unlimited"}));
  EXPECT_EQ(tree.bytes("memory.nvme"), kUnlimitedBytes);
  EXPECT_TRUE(std::isinf(tree.seconds("train.max_time")));
  EXPECT_FALSE(with_arguments({"memory.device=unlimited"}).has_value());
}

TEST(ConfigTest, StepsAreOffOnOneOrARange) {
  EXPECT_TRUE(must(build({})).steps("train.trace").empty());
  EXPECT_EQ(must(with_arguments({"train.trace=true"})).steps("train.trace"), kAllSteps);
  EXPECT_EQ(must(with_arguments({"train.trace=10-12"})).steps("train.trace"), (StepRange{10, 12}));
  EXPECT_EQ(must(build(toml("[train]\ntrace = 7\n"))).steps("train.trace"), (StepRange{7, 7}));
  for (const char* bad : {"0", "12-10", "-3", "1-", "x"})
    EXPECT_FALSE(with_arguments({str("train.trace=", bad)}).has_value()) << bad;
}

TEST(ConfigTest, SpecialVariablesSetTheirKeyOrAreLeftToTheProgram) {
  const ConfigTree tree = must(build({.environment = {"STRATA_CONFIG=x.toml", "STRATA_SHAPE=linear"}}));
  EXPECT_EQ(tree.text("optim.schedule"), "linear");
  EXPECT_EQ(tree.entry("optim.schedule").origin, "environment STRATA_SHAPE");
}

TEST(ConfigTest, AutoIsAcceptedOnlyWhereAllowed) {
  EXPECT_THAT(argument_problems({"model.layers=auto"}), HasSubstr("'auto' is not a 64-bit integer"));
  EXPECT_TRUE(must(with_arguments({"memory.device=auto"})).is_auto("memory.device"));
}

TEST(ConfigTest, AResolvedAutoIsReadAndPrintedWithItsReason) {
  ConfigTree tree = must(build({}));
  EXPECT_THAT(tree.to_toml(true), HasSubstr("# default; auto: decided when a run starts"));
  tree.resolve("memory.device", std::uint64_t{32 * kMiB}, "half of the\nRAM");
  EXPECT_EQ(tree.bytes("memory.device"), 32 * kMiB);
  EXPECT_FALSE(tree.is_auto("memory.device"));
  EXPECT_THAT(tree.to_toml(true),
              HasSubstr("device = \"32MiB\"                # default; auto: half of the?RAM\n"));
}

TEST(ConfigTest, ThePrintedTreeReadsBackToTheSameValues) {
  const ConfigTree tree =
      must(with_arguments({"model.preset=small", "optim.lr=0.1", "memory.device=12345",
                           "memory.nvme=unlimited", "train.max_time=1.5h", "train.trace=3-4",
                           "train.mix=0.1,1e-300,3", "train.files=[\"q\\\"\\\\ \\n\\u00e9\", \"#\"]"}));
  const ConfigTree again = must(build(toml(tree.to_toml(true))));
  EXPECT_EQ(again.to_toml(false), tree.to_toml(false));
  EXPECT_EQ(must(build(json_sources(tree.to_json(false)))).to_toml(false), tree.to_toml(false));
  for (std::size_t i = 0; i < tree.entries().size(); ++i)
    EXPECT_EQ(tree.entries()[i].value, again.entries()[i].value);
}

TEST(ConfigTest, HostileNamesStayOnOneReadableLine) {
  const std::string text = argument_problems({"a\nb\x1b[31m=" + std::string(5000, 'x') + "\xff"});
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_LT(text.size(), 600u);
  EXPECT_THAT(argument_problems({"model.preset=\xff"}), HasSubstr("not UTF-8"));
}

/// Files with a few bytes changed, removed or duplicated: whatever is accepted must read back to the same
/// values.
TEST(ConfigTest, DamagedFilesAreRefusedOrReadTheSameTwice) {
  const ConfigTree whole =
      must(with_arguments({"model.preset=small", "train.mix=1,2", "train.trace=3-4", "train.max_time=9s"}));
  std::mt19937 random(20240607);
  int taken = 0;
  for (int i = 0; i < 4000; ++i) {
    const bool as_json = i % 2 != 0;
    std::string text = as_json ? whole.to_json(false) : whole.to_toml(true);
    for (unsigned n = random() % 3 + 1; n > 0; --n) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, random() % 8);
      else if (random() % 2 == 0)
        text.insert(at, text.substr(random() % text.size(), random() % 40));
      else
        text[at] = static_cast<char>(random());
    }
    const Result<ConfigTree> tree = build(as_json ? json_sources(text) : toml(text));
    if (!tree.has_value()) {
      EXPECT_THAT(tree.status().message(), StartsWith("file run.")) << text;
      continue;
    }
    ++taken;
    EXPECT_EQ(must(build(toml(tree->to_toml(true)))).to_toml(false), tree->to_toml(false)) << text;
  }
  EXPECT_GT(taken, 100);
}

TEST(ConfigDeathTest, ReadingAKeyAsAnotherTypeOrBeforeItsAutoIsDecidedIsABug) {
  const ConfigTree tree = must(build({}));
  EXPECT_DEATH(static_cast<void>(tree.integer("optim.lr")), "a type other than its own");
  EXPECT_DEATH(static_cast<void>(tree.bytes("memory.device")), "has no value yet");
  EXPECT_DEATH(static_cast<void>(tree.flag("io.derict")), "no key io.derict");
}

}  // namespace
}  // namespace strata
