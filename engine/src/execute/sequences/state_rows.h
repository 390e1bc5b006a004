#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <strata/engine/run_plan.h>

namespace strata::detail {

/// The states that layers make of all tokens of a sequence, one row for each slot. Keys and values are none:
/// what they have of a token stays when others follow. A snapshot has the rows of a slot one behind the
/// other.
class StateRows {
 public:
  /// Empty for a program without such states.
  explicit StateRows(const LoweredProgram& program);

  struct Row {
    std::size_t begin = 0;  ///< the row of slot 0, in bytes from the beginning of all states
    std::size_t bytes = 0;
    std::size_t in_snapshot = 0;
  };
  const std::vector<Row>& rows() const noexcept { return rows_; }
  bool empty() const noexcept { return rows_.empty(); }
  std::int32_t slots() const noexcept { return slots_; }
  std::size_t snapshot_bytes() const noexcept { return snapshot_bytes_; }

 private:
  std::vector<Row> rows_;
  std::int32_t slots_ = 0;
  std::size_t snapshot_bytes_ = 0;
};

/// The bytes of all snapshots of a plan, behind its states.
std::size_t snapshot_bytes(const RunPlan& plan);

}  // namespace strata::detail
