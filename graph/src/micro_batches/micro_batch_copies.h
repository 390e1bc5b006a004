#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include <strata/graph/op_attrs.h>
#include <strata/graph/program.h>

namespace strata::detail {

/// Whether the result of an instruction is the same in every micro-batch, like a RoPE table.
bool is_constant(const Instr& instr) noexcept;

/// Copies the instructions of a program for each of its micro-batches: every one has values of its own, and
/// the sum of their gradients is added up in f32, in the order in which their last parts come. Micro-batch 0
/// has the original values; parameters, gradients and constants are shared by all. With one micro-batch,
/// nothing changes unless gradients are added up over ranks.
class MicroBatchCopies {
 public:
  /// Adds the values of all micro-batches to `to`, a copy of `from` without code. `order`: the instructions
  /// that are copied, in the order in which a micro-batch runs them.
  MicroBatchCopies(const Program& from, Program& to, std::int32_t micro_batches,
                   std::span<const std::size_t> order);

  /// The value of micro-batch k.
  ValueId of(ValueId id, std::int32_t k) const {
    return id == kNoValue ? id : copy_[static_cast<std::size_t>(k)][at(id)];
  }
  /// Gradients are added up in that value instead of the parameter's gradient. Before instructions are added.
  void add_up_in(ValueId grad, ValueId sum);
  /// Gradients of each micro-batch are added up over the ranks of that axis (accumulate_over_ranks). Before
  /// instructions are added.
  void add_up_over(const CollectiveAttrs& ranks);
  /// Appends instruction `i` for micro-batch k, and the addition of the gradients that it completes.
  void add(std::size_t i, std::int32_t k);

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  bool is_gradient(ValueId id) const { return from_.value(id).kind == ValueKind::grad; }
  std::vector<ValueId> clone_values(std::int32_t k);
  ValueId micro_batch_grad_of(ValueId grad, std::int32_t k);
  void sum_in_f32();

  const Program& from_;
  Program& to_;
  std::optional<CollectiveAttrs> over_ranks_;
  std::vector<ValueId> sum_;  // indexed by value: in which the gradients that it is of are added up
  std::vector<std::size_t> last_writer_;    // indexed by value: the instruction that completes a gradient
  std::set<ValueId> written_;               // gradients
  std::vector<std::vector<ValueId>> copy_;  // indexed by micro-batch and value
  std::vector<std::vector<ValueId>> micro_batch_grads_;  // indexed by micro-batch and value
};

}  // namespace strata::detail
