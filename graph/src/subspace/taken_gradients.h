#pragma once

#include <map>
#include <span>
#include <string>

#include <strata/graph/subspace_passes.h>

// Functions that are shared by the passes that compute with the gradients of matrices instead of training
// these.

namespace strata::detail {

/// The gradients of the matrices of groups, which are activations now, by matrix.
using TakenGradients = std::map<std::string, ValueId, std::less<>>;
/// Makes the gradients of the matrices activations, and the matrices not trainable. Errors: `invalid`, all
/// problems at once, beginning with `what`: a group without a basis, a matrix without a gradient.
Result<TakenGradients> take_gradients(Program& program, std::span<const LoraGroup> groups,
                                      std::string_view what);

/// The side of the matrix's gradient that the group's basis is of.
kernels::SubspaceSide side_of(const LoraGroup& group) noexcept;

/// The index of the last instruction that writes the value, which one does.
std::size_t last_writer(const Program& program, ValueId value) noexcept;

/// Instructions that go behind others, in the order in which they are added.
class Insertions {
 public:
  /// An instruction of the region of the one it goes behind, in backward.
  void add_behind(std::size_t index, const Program& program, Instr instr);
  void apply(Program& program) &&;

 private:
  std::multimap<std::size_t, Instr> behind_;
};

}  // namespace strata::detail
