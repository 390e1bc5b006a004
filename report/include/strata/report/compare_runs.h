#pragma once

#include <string>
#include <vector>

#include <strata/report/run_record.h>

namespace strata {

/// A key whose value is not the same in all runs.
struct SettingDifference {
  std::string key;
  std::vector<std::string> values;  ///< the value of each run
};
std::vector<SettingDifference> setting_differences(const std::vector<RunRecord>& runs);

/// How much longer a step of `other` takes than one of `base`.
struct SpeedDifference {
  double ratio = 1;          ///< the ratio of the means of the steps behind the first ones
  double low = 1, high = 1;  ///< bounds of the ratio with 95 % confidence
  std::size_t blocks = 0;    ///< blocks of steps, whose means are compared; below 2: too few steps to tell
  bool is_significant() const noexcept { return blocks >= 2 && (low > 1 || high < 1); }
};
/// Steps that follow each other are alike, so that means of blocks of steps are compared (Welch's test), not
/// steps. The first steps, in which memory is touched for the first time, do not count.
SpeedDifference speed_difference(const RunRecord& base, const RunRecord& other);

/// How far two runs computed the same: the first step whose losses have different bits; -1 if none has.
struct LossDifference {
  std::int64_t common_steps = 0, first_step = -1;
  double largest = 0;  ///< difference of losses
};
LossDifference loss_difference(const RunRecord& a, const RunRecord& b);

}  // namespace strata
