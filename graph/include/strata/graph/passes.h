#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <strata/graph/program.h>

namespace strata {

/// Appends the derivative of output `loss` with respect to every trainable parameter. Each parameter gets a
/// value of kind grad; contributions (tied uses) are added in program order. Errors: `invalid` when there is
/// no such output, no trainable parameter, or an op without a derivative.
Result<Program> derive_backward(Program program, std::string_view loss);

/// What backward makes again instead of keeping it; least work first.
enum class Recompute : std::uint8_t {
  none,
  selective,  ///< what is cheap for its bytes: norms, activations, rotations; products and attention are kept
  block,      ///< everything in a marked region: only its borders are kept
};
inline constexpr std::array kRecomputeModes = {Recompute::none, Recompute::selective, Recompute::block};
std::string_view to_string(Recompute mode) noexcept;

/// For every region marked for it: backward reads values made by a second run of the region's own forward
/// instructions, cloned right before what reads them first. The clones are the very same instructions, so no
/// bit changes. Block: Chen et al. 2016, arXiv 1604.06174. Selective: the idea of Korthikanti et al. 2022,
/// arXiv 2205.05198, section 5, by operations a byte; it never keeps what `none` would not.
Program recompute_regions(Program program, Recompute mode);

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
