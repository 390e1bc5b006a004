#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <strata/engine/run_plan.h>
#include <strata/graph/passes.h>
#include <strata/session/state_piece.h>

namespace strata::detail {

/// The bases that the program with the role `refresh` finds, until they are stored; their values are where
/// refresh() keeps them. Plan and groups outlive it, and it outlives what sink() and editor() return.
class FoundBases {
 public:
  FoundBases(const RunPlan& plan, std::span<const LoraGroup> groups) : plan_(plan), groups_(groups) {}

  /// Errors: `invalid`, all problems at once: a group without a basis, or whose basis is no result of the
  /// program or no parameter of the run, or has another size there.
  Status check() const;
  /// Takes the results of the program.
  VisitState sink();
  /// Errors: `diverged`, naming a basis that is not finite, unless the run skips steps that are not.
  Status check_finite() const;
  /// The bases that are stored: those that are finite.
  std::vector<std::string> names() const;
  /// Stores them rounded to the dtypes of the parameters.
  FillState editor() const;
  bool is_kept(const LoraGroup& group) const { return !basis_of(group).is_finite; }
  std::vector<float> energy(const LoraGroup& group) const;

 private:
  struct Basis {
    DType dtype = DType::f32;
    std::span<const float> values;
    bool is_finite = false;
  };
  const Basis& basis_of(const LoraGroup& group) const;
  std::string problem_of(const LoraGroup& group) const;
  void take(const StatePiece& result, std::span<const float> values);

  const RunPlan& plan_;
  const std::span<const LoraGroup> groups_;
  std::map<std::string, Basis, std::less<>> bases_;
  std::map<std::string, std::vector<float>, std::less<>> energies_;  ///< keyed by the name of their result
};

}  // namespace strata::detail
