// Suggested budgets and sweeps stay within what the machine has.
#include <strata/profile/budget_sweep.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/profile/machine_memory.h>
#include <strata/profile/next_change.h>
#include <strata/profile/model_shapes.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A model step: twice the device budget halves its time; the other budgets have no effect.
Forecast of(const TierBytes& budgets) {
  Forecast forecast;
  forecast.step_s = 1e12 / static_cast<double>(budgets[0]);
  return forecast;
}
std::string suggestion(std::uint64_t device, std::uint64_t limit) {
  const TierBytes budgets = {device, 8 * kGiB, 0};
  return must(suggest_change(budget_changes(budgets, {limit, 8 * kGiB, kUnlimited}), of(budgets),
                             [](const std::string& setting) {
                               const std::string bytes = setting.substr(setting.find('=') + 1);
                               return std::optional(of({std::stoull(bytes), 8 * kGiB, 0}));
                             }));
}

TEST(BudgetSweepTest, SuggestionsEndAtWhatTheMachineHas) {
  EXPECT_THAT(suggestion(100 * kGiB, kUnlimited), HasSubstr("125.0 GiB instead of 100.0 GiB"));
  EXPECT_THAT(suggestion(120 * kGiB, 136 * kGiB), HasSubstr("136.0 GiB instead of 120.0 GiB"));
  EXPECT_THAT(suggestion(136 * kGiB, 136 * kGiB), HasSubstr("no tier of the machine has more"));
  EXPECT_THAT(suggestion(140 * kGiB, 136 * kGiB), HasSubstr("no tier of the machine has more"))
      << "the user's own";
}

TEST(NextChangeTest, TheMostTokensPerSecondWin) {
  const std::vector<RunChange> changes = {{"a.a=1", "", 1}, {"b.b=2", "twice as much", 2}, {"c.c=3", "", 2}};
  const auto step = [](double seconds) {
    Forecast forecast;
    forecast.step_s = seconds;
    return std::optional(forecast);
  };
  const auto suggested = [&](double a_s, double b_s) {
    return must(suggest_change(changes, *step(10), [&](const std::string& setting) {
      return setting == "a.a=1" ? step(a_s) : setting == "b.b=2" ? step(b_s) : std::nullopt;
    }));
  };
  EXPECT_EQ(suggested(8, 15), "with b.b=2 (twice as much) a step would take 15 s, 1.33x the tokens/s\n");
  EXPECT_EQ(suggested(5, 15), "with a.a=1 a step would take 5 s, 2.00x as fast\n");
  EXPECT_EQ(suggested(9.9, 20), "none of a.a=1, b.b=2, c.c=3 would make it 2 % faster\n");
}

TEST(BudgetSweepTest, SweepsEndAtWhatTheMachineHas) {
  const TierBytes budgets = {64 * kGiB, 8 * kGiB, 0};
  const BudgetSweep sweep = must(sweep_budgets(
      budgets, {100 * kGiB, 8 * kGiB, 0}, [](const TierBytes& with) { return std::optional(of(with)); }));
  EXPECT_THAT(sweep.device, ElementsAre(16 * kGiB, 32 * kGiB, 64 * kGiB, 100 * kGiB));
  EXPECT_THAT(sweep.pinned, ElementsAre(2 * kGiB, 4 * kGiB, 8 * kGiB));
}

TEST(MachineMemoryTest, TiersThatAreBothRamShareIt) {
  HostFacts facts;
  facts.total_ram_bytes = 64 * kGiB;
  const TierBytes budgets = {10 * kGiB, 20 * kGiB, 0};
  EXPECT_THAT(machine_memory(nullptr, {}, facts, budgets), ElementsAre(44 * kGiB, 54 * kGiB, kUnlimited));
  facts.cgroup_limit_bytes = 32 * kGiB;
  EXPECT_THAT(machine_memory(nullptr, {}, facts, budgets), ElementsAre(12 * kGiB, 22 * kGiB, kUnlimited));
  EXPECT_THAT(machine_memory(nullptr, {}, facts, {kUnlimited, kUnlimited, 0}),
              ElementsAre(32 * kGiB, 32 * kGiB, kUnlimited));
  EXPECT_THAT(machine_memory(nullptr, {DeviceKind::cuda, "a GPU", 80 * kGiB, 90}, facts, budgets),
              ElementsAre(80 * kGiB, 32 * kGiB, kUnlimited));
}

TEST(MachineMemoryTest, AnotherMachinesMemoryComesFromItsProfile) {
  MachineProfile profile;
  profile.memory = {136 * kGiB, 114 * kGiB, 0};
  EXPECT_THAT(machine_memory(&profile, {}, {}, {1, 1, 1}), ElementsAre(136 * kGiB, 114 * kGiB, kUnlimited));
}

TEST(ParameterCountTest, CommonNotationsAreParsed) {
  for (const auto& [text, value] : {std::pair{"7b", 7e9},
                                    {"7B", 7e9},
                                    {"1.3B", 1.3e9},
                                    {"350m", 3.5e8},
                                    {"13e9", 13e9},
                                    {"70b", 7e10},
                                    {"1T", 1e12},
                                    {"500K", 5e5},
                                    {"7000000000", 7e9}})
    EXPECT_DOUBLE_EQ(must(parse_parameter_count(text)), value) << text;
  for (const char* none : {"7x", "seven", "7bb", "b", "7 b", "7b ", "-"})
    EXPECT_THAT(std::string(parse_parameter_count(none).status().message()),
                HasSubstr("7b, 1.3B, 350m, 13e9"))
        << none;
}

}  // namespace
}  // namespace strata
