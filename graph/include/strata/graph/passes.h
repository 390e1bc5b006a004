#pragma once

#include <vector>

#include <strata/graph/program.h>

namespace strata {

/// Appends the derivative of output `loss` with respect to every trainable parameter. Each parameter gets a
/// value of kind grad; contributions (tied uses) are added in program order. Errors: `invalid` when there is
/// no such output, no trainable parameter, or an op without a derivative.
Result<Program> derive_backward(Program program, std::string_view loss);

/// For every region marked for it: backward reads values made by a second run of the region's own forward
/// instructions, cloned just before, so that between forward and backward only region borders are kept.
/// The clones are the very same instructions, so no bit changes (Chen et al. 2016, arXiv 1604.06174).
Program recompute_regions(Program program);

/// Where each activation, input and workspace lies in one arena. Values whose lives overlap never share a
/// byte.
struct MemoryPlan {
  static constexpr std::size_t kAlign = 256;
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  std::vector<std::size_t> offset;  ///< by ValueId; kNowhere for parameters, gradients, states, unused values
  std::size_t arena_bytes = 0;
};
/// Greedy by size over exact lifetimes (Pisarchyk & Lee 2020, arXiv 2001.03288, Alg. 3); inputs and outputs
/// live throughout; an op that may run in place does where its input dies.
MemoryPlan plan_memory(const Program& program);

}  // namespace strata
