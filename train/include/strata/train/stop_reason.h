#pragma once

#include <cstdint>

namespace strata {

/// Why training ended.
enum class StopReason : std::uint8_t {
  finished,       ///< all steps are done
  time_limit,     ///< train.max_time; saved, can be resumed
  write_budget,   ///< io.write_budget; saved, can be resumed
  signal,         ///< a signal; saved, can be resumed
  budget_change,  ///< not an end: other budgets were requested, see Trainer::continue_in()
};

}  // namespace strata
