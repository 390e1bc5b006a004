#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>

#include "cli/run_command.h"
#include "exit_code.h"

namespace strata::cli {
namespace {

using test::Outcome;
using test::strata_command;
using test::Stream;
using test::TempFile;

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CommandTest, ShownConfigurationReadsBackToTheSame) {
  const Outcome first =
      strata_command({"config", "show", "--preset", "austen-5m", "--origin", "optim.lr=0.5"});
  ASSERT_EQ(first.code, 0) << first.err;
  const TempFile file("_again.toml", first.out);
  EXPECT_EQ(
      strata_command({"config", "show", file.path()}).out,
      strata_command({"config", "show", "--preset", "austen-5m", "optim.lr=0.5",
                      "cpu.threads=" + nlohmann::json::parse(
                                           strata_command({"config", "show", "--json"}).out)["cpu"]["threads"]
                                           .dump()})
          .out);
}

TEST(CommandTest, JsonHasTheOriginOfEveryValue) {
  const Outcome shown = strata_command({"config", "show", "--json", "--origin", "--preset", "austen-tiny"},
                                       {"STRATA_TRAIN_STEPS=7"});
  const auto tree = nlohmann::json::parse(shown.out);
  EXPECT_EQ(tree["model"]["layers"]["origin"], "preset austen-tiny");
  EXPECT_EQ(tree["train"]["steps"]["value"], 7);
  EXPECT_EQ(tree["offload"]["step_mode"]["value"], "two_phase");
  EXPECT_TRUE(tree["offload"]["step_mode"]["auto"]);
}

TEST(CommandTest, CheckReportsEveryProblemAtOnceAndPrintsNothingElse) {
  const Outcome bad = strata_command({"config", "check", "optim.lr=x", "model.layers=0", "model.lyers=1"},
                                     {"STRATA_TRIAN_SEED=1"});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_EQ(bad.out, "");
  EXPECT_THAT(bad.err, HasSubstr("strata config check: 4 problems\n"));
  EXPECT_THAT(bad.err, HasSubstr("STRATA_TRIAN_SEED: unknown variable; did you mean 'STRATA_TRAIN_SEED'?"));
  const auto json =
      nlohmann::json::parse(strata_command({"config", "check", "--json", "optim.lr=x", "model.lyers=1"}).out);
  EXPECT_FALSE(json["ok"]);
  EXPECT_EQ(json["problems"].size(), 2u);
}

TEST(CommandTest, ConflictingLaunchersAreReportedWithTheOtherProblems) {
  const Outcome bad =
      strata_command({"config", "check", "model.heads=3"}, {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_THAT(bad.err, HasSubstr("2 problems"));
  EXPECT_THAT(bad.err, HasSubstr("LOCAL_RANK is 4, but LOCAL_WORLD_SIZE is 4"));
  EXPECT_THAT(bad.err, HasSubstr("model.heads"));
}

TEST(CommandTest, ServiceCoresThatLeaveNoneToComputeAreRefused) {
  const Outcome bad = strata_command({"config", "check", "cpu.service_cores=1024"});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_THAT(bad.err, HasSubstr("cpu.service_cores is 1024; this process has"));
}

TEST(CommandTest, CheckOfAGoodFileIsOk) {
  const TempFile file("_good.json", R"({"memory": {"device": "64MiB"}})");
  const Outcome good = strata_command({"config", "check", file.path()});
  EXPECT_EQ(good.code, 0);
  EXPECT_THAT(good.out, HasSubstr("ok: 1 of "));
}

TEST(CommandTest, TheFileMayComeFromTheEnvironment) {
  const TempFile file("_env.toml", "[train]\nsteps = 3\n");
  const std::vector<std::string> environment = {"STRATA_CONFIG=" + file.path()};
  EXPECT_THAT(strata_command({"config", "show"}, environment).out, HasSubstr("steps = 3\n"));
  const TempFile other("_arg.toml", "[train]\nsteps = 4\n");
  EXPECT_THAT(strata_command({"config", "show", other.path()}, environment).out, HasSubstr("steps = 4\n"));
}

TEST(CommandTest, ASecondFileIsRefused) {
  EXPECT_THAT(strata_command({"config", "show", "a.toml", "b.toml"}).err,
              HasSubstr("a second file besides a.toml"));
}

TEST(CommandTest, UsageErrorsHaveSuggestionsAndReturnTwo) {
  EXPECT_THAT(
      strata_command({"confg"}).err,
      HasSubstr(
          "unknown verb 'confg'; known: demo, init, train, plan, budget, bench, generate, chat, serve, eval, "
          "score, report, top, compare, trace, ckpt, export, verify, tokenizer, "
          "data, config, completions, man, doctor; did you mean 'config'?"));
  EXPECT_THAT(strata_command({"config", "shwo"}).err, HasSubstr("did you mean 'show'?"));
  EXPECT_THAT(strata_command({"config"}).err, HasSubstr("missing action; known: show, check"));
  EXPECT_THAT(strata_command({"doctor", "--jsn"}).err,
              HasSubstr("strata: unknown option '--jsn'; did you mean '--json'?\nRun 'strata --help'."));
  EXPECT_THAT(strata_command({"export", "run", "--ouut=x"}).err, HasSubstr("did you mean '--out'?"));
  EXPECT_THAT(strata_command({"tokenizer", "train", "a.txt", "--vcoab", "300"}).err,
              HasSubstr("did you mean '--vocab'?"));
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"train"},
                                                       {"config"},
                                                       {"config", "--json"},
                                                       {"config", "check", "--origin"},
                                                       {"doctor", "extra"},
                                                       {"doctor", "--nvme-dir"},
                                                       {"--verbose"},
                                                       {""}};
  for (const auto& arguments : wrong)
    EXPECT_EQ(strata_command(arguments).code, kExitUsage) << (arguments.empty() ? "" : arguments[0]);
}

TEST(CommandTest, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(strata_command({"--help"}).code, 0);
  const Outcome help = strata_command({"config", "show", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("Usage: strata config show [OPTIONS]"));
  EXPECT_THAT(help.out, Not(HasSubstr("Exit codes")));
  EXPECT_THAT(strata_command({"--version"}).out, HasSubstr("strata "));
}

TEST(CommandTest, OutputThatCannotBeWrittenIsAnIoError) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  Stream err;
  EXPECT_EQ(run_command_line({"config", "show"}, {}, full, err.file()), kExitIo);
  std::fclose(full);
}

TEST(ExitCodeTest, EachKindOfFailureHasItsNumber) {
  const auto code = [](Code c) { return exit_code(Status::error(c, "x")); };
  EXPECT_EQ(exit_code(Status::ok()), 0);
  EXPECT_EQ(code(Code::invalid), 2);
  EXPECT_EQ(code(Code::does_not_fit), 3);
  EXPECT_EQ(code(Code::out_of_memory), 3);
  EXPECT_EQ(code(Code::diverged), 4);
  EXPECT_EQ(code(Code::io_error), 5);
  EXPECT_EQ(code(Code::no_space), 5);
  EXPECT_EQ(code(Code::corrupt), 5);
  EXPECT_EQ(code(Code::cancelled), 75);
}

}  // namespace
}  // namespace strata::cli
