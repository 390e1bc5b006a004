#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/report/samples_file.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

inline constexpr double kNoValue64 = std::numeric_limits<double>::quiet_NaN();

/// The contents of a run folder about a run, whether it has ended or not.
struct RunRecord {
  /// A figure of every step that metrics.jsonl has, or of every second one, every fourth and so on where
  /// there are more than 20,000; NaN where a step lacks it. Members of objects have the object's name before
  /// theirs: "exposed_wait_s.nvme".
  struct Series {
    std::string name;
    std::vector<double> values;
  };
  struct Validation {
    std::int64_t step = 0;
    double loss = 0;
    double accuracy = kNoValue64;  ///< the accuracy on pairs, if the run compares them
  };
  using Sample = TextSample;
  /// A key of the configuration.
  struct Setting {
    std::string key, value;
    std::string origin;  ///< "default", "argument train.steps=10", with the reason behind "auto:"
  };
  struct TierUse {
    std::string name;
    std::uint64_t budget = 0, planned = 0, home = 0;
    std::optional<std::uint64_t> peak;  ///< once the run has ended
  };
  struct Lane {
    std::string name;
    double busy_s = 0;                      ///< in the whole run
    std::uint64_t bytes = 0;                ///< 0: it moves none
    double expected_s = 0, measured_s = 0;  ///< the times of a step, where there was a forecast
  };
  /// Where each chunk of a payload lives: a letter per chunk, the first of the tier's name, or '-'.
  struct Homes {
    std::string payload;
    std::string tiers;
  };
  /// Intervals of the lanes in the steps that log.trace selected.
  struct Timeline {
    struct Span {
      int lane = 0, label = 0;
      double begin_us = 0, us = 0;
      std::int64_t arg = 0;
    };
    std::vector<std::string> lanes, labels;
    std::vector<Span> spans;   ///< sorted by lane, and then by time
    std::size_t left_out = 0;  ///< older spans
  };
  /// Where the payloads of each chunk were in a traced step. Letters are those of Homes, and of moves: 'r' is
  /// from nvme to pinned memory and 'w' back, 'u' from there to the device and 'e' back.
  struct Playback {
    struct Change {
      double us = 0;  ///< since the step began
      int row = 0;    ///< the index of a row of `begin`
      int chunk = 0;
      char letter = '-';
    };
    std::int64_t step = 0;
    double us = 0;                ///< the length of what is played; 0: nothing
    bool is_cut = false;          ///< the step goes on, with more changes than a page can hold
    std::vector<Homes> begin;     ///< when the step began
    std::vector<Change> changes;  ///< sorted by time
  };

  std::string name;  ///< the name of the folder
  std::vector<std::int64_t> steps;
  std::vector<Series> series;
  std::vector<Validation> validations;
  std::vector<Sample> samples;
  std::vector<Setting> settings;
  std::vector<TierUse> tiers;
  std::vector<Lane> lanes;
  std::vector<Homes> homes;
  Timeline timeline;
  Playback playback;
  std::map<std::string, std::string>
      facts;  ///< facts of the plan and of the end of the run: "dtype", "parameters" ...
  double expected_step_s = 0, measured_step_s = 0;  ///< 0: there was no forecast
  bool has_ended = false;

  /// Null if no step has it.
  const std::vector<double>* find(std::string_view series_name) const noexcept;
  /// The mean of the steps that have it; NaN if none does.
  double mean(std::string_view series_name) const noexcept;
};

/// Reads a run folder. A last line of metrics.jsonl that is being written is ignored, and so are files that
/// are not there yet. Errors: `not_found` if the folder has no configuration of a run, `corrupt` for a file
/// that is no JSON, naming the line.
Result<RunRecord> read_run_record(Io& io, const std::string& folder);
/// The same with the last few hundred steps only, and without the intervals of traced steps: for a run that
/// is watched.
Result<RunRecord> read_recent_steps(Io& io, const std::string& folder);

}  // namespace strata
