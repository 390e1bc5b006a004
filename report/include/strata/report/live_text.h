#pragma once

#include <string>

#include <strata/report/run_record.h>

namespace strata {

struct LiveScreen {
  int columns = 80, rows = 24;
  bool colours = false;  ///< whether escape sequences colour the text
};
/// A run as it is now, in at most `rows` lines of at most `columns` columns: progress, losses and speed of
/// the last steps, tiers, what steps wait for, and lanes. What matters least is left out first.
std::string live_text(const RunRecord& run, const LiveScreen& screen);
/// One line, for a log or a pipe.
std::string live_line(const RunRecord& run);

}  // namespace strata
