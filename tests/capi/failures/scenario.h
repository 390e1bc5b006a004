#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <strata.h>

#include "capi/failures/failures.h"

namespace strata::test {

/// A sequence of calls of the interface that trains three parameters for three steps. A call that fails is
/// made again or, if the session says that its states belong to no step, the last checkpoint is loaded first:
/// the end is the same as without a failure.
struct Scenario {
  const char* name;
  strata_placement placement;
  strata_holds holds;
  int threads;
  bool uring;
};
inline constexpr std::array kScenarios = {
    Scenario{"ram", STRATA_PLACE_PINNED, STRATA_HOLDS_STATES, 2, false},
    Scenario{"nvme", STRATA_PLACE_NVME, STRATA_HOLDS_STATES, 1, true},
    Scenario{"nvme_pread", STRATA_PLACE_NVME, STRATA_HOLDS_STATES, 1, false},
    Scenario{"params", STRATA_PLACE_PINNED, STRATA_HOLDS_PARAMS, 1, false},
    Scenario{"params_nvme", STRATA_PLACE_NVME, STRATA_HOLDS_PARAMS, 1, true},
};

/// One run. Problems are printed and counted; nothing is asserted, so that every failure is seen.
class ScenarioRun {
 public:
  /// The session's files are in `dir`/nvme, checkpoints in `dir`/checkpoints.
  ScenarioRun(const Scenario& scenario, const FailureAt& failure, std::string dir);
  /// Returns a hash of all that the trainer sees at the end.
  std::uint64_t run();
  int problems() const { return problems_; }
  /// The status of the call that failed first; OK: none.
  strata_status refused_with() const { return refused_with_; }

 private:
  struct Call {
    const char* name;
    std::function<strata_status()> make;
    std::size_t again_from;  ///< where a repetition begins
  };
  struct Param {
    std::string name;
    strata_dtype dtype;
    std::int64_t n;
    std::vector<std::uint32_t> values, gradient;  // more than enough bytes for each dtype
  };
  strata_status made(const char* name, const std::function<strata_status()>& make);
  bool repeat_once(const char* name, const std::function<strata_status()>& make);
  bool run_all(const std::vector<Call>& calls, const std::function<bool()>& recover);
  bool start();
  bool train();
  std::vector<Call> calls_of_step(std::int64_t step);
  void add_update_calls(std::vector<Call>& calls);
  bool load(std::int64_t step);
  bool set_states();
  std::vector<void*> addresses();
  strata_status step();
  strata_status visit(strata_state state);
  void problem(const char* what, strata_status status);

  const Scenario& scenario_;
  const FailureAt failure_;
  const std::string dir_, checkpoints_;
  std::array<Param, 3> params_;
  std::vector<std::vector<std::uint32_t>> read_;
  strata_settings settings_;
  strata_session session_ = 0;
  std::uint64_t hash_ = 0, visited_ = 0;
  int problems_ = 0;
  strata_status refused_with_ = STRATA_OK;
};

/// Calls that need no session: strata_arrays_*, strata_ds_config_convert(), refused options and handles.
int run_without_sessions(const FailureAt& failure);

}  // namespace strata::test
