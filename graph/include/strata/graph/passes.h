#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/graph/program.h>

namespace strata {

/// For every parameter the first of `patterns` that matches its name, -1 where none does. A pattern is a
/// glob:
/// `*` is any text, `?` one character, `[a-c]` one of them (POSIX fnmatch). Errors: `invalid`, every pattern
/// that matches no parameter, with the names nearest to it, after the `key` that it was given by.
Result<std::vector<std::int32_t>> match_parameters(const Program& program,
                                                   std::span<const std::string> patterns,
                                                   std::string_view key);

/// The parameters that `patterns` match are not trainable any more, for all their uses; before
/// derive_backward(). Errors: `invalid` for a pattern that matches none, and when nothing is left to train.
Result<Program> freeze_parameters(Program program, std::span<const std::string> patterns);

/// Appends the derivative of output `loss` with respect to every trainable parameter. Each parameter gets a
/// value of kind grad; contributions (tied uses) are added in program order. Errors: `invalid` when there is
/// no such output, no trainable parameter, or an op without a derivative.
Result<Program> derive_backward(Program program, std::string_view loss);

/// The products of blocks, and those of their backward, are made of operands in eight bits (kernels/fp8.h):
/// e4m3, and e5m2 for gradients. What these read of x in backward is its codes, half the bytes. Of 16-bit
/// programs, and where all sides are multiples of sixteen; the head, norms and attention stay as they are.
/// Changes results: of a run all programs, before recompute_regions(); twice changes nothing more.
Program use_fp8(Program program);

/// What backward makes again instead of keeping it; least work first.
enum class Recompute : std::uint8_t {
  none,
  selective,  ///< what is cheap for its bytes: norms, activations, rotations; products and attention are kept
  full,       ///< everything in a marked region: only its borders are kept
};
inline constexpr std::array kRecomputeModes = {Recompute::none, Recompute::selective, Recompute::full};
std::string_view to_string(Recompute mode) noexcept;

/// For every region marked for it: backward reads values made by a second run of the region's own forward
/// instructions, cloned right before what reads them first. The clones are the very same instructions, so no
/// bit changes. Full: Chen et al. 2016, arXiv 1604.06174. Selective: the idea of Korthikanti et al. 2022,
/// arXiv 2205.05198, section 5, by operations a byte; it never keeps what `none` would not.
Program recompute_regions(Program program, Recompute mode);

/// All micro-batches of a step in one program: layer by layer each of them in turn, so that parameters are
/// needed once in forward and once in backward, and a gradient is summed before it leaves; what forward
/// leaves for backward is held for all of them at once. Each micro-batch's gradient is rounded as it is alone
/// and added in f32 in their order: the bits of `micro_batches` passes. (Horizontal and vertical schedules:
/// Lamy- Poirier 2021, arXiv 2106.02679.) After recompute_regions(), before offload_activations().
Program interleave_micro_batches(const Program& program, std::int32_t micro_batches);

/// An addition right before the norm that reads it becomes one pass over memory with it, in a region: as the
/// sum is rounded before it is normed, no bit changes. After recompute_regions(), which makes the norm again
/// without the addition where the sum is kept; twice changes nothing more.
Program fuse_add_norm(Program program);

/// Every product gets scratch of its own (kernels::gemm_workspace_bytes), for programs that a GPU runs:
/// those of a long inner extent are faster with it. After interleave_micro_batches(), before
/// offload_activations(); twice changes nothing more.
Program assign_gemm_workspaces(Program program);

/// What multiplies in attention, both ways, on GPUs that have it, with the scratch that it takes; what it
/// does not multiply (kernels::effective_attention_backend) is left to warps. Before offload_activations();
/// twice changes nothing more.
Program select_attention_backend(Program program, kernels::AttentionBackend by);

/// What offload_activations() goes by. Rates are those that a program may count on throughout; they choose
/// how early a move begins, and no result depends on them.
struct OffloadOptions {
  double share = 1;                  ///< of the bytes that qualify: those longest unread first
  double flops_per_s = 1e14;         ///< of the device
  double memory_bytes_per_s = 2e12;  ///< of its memory
  double link_bytes_per_s = 2e10;    ///< in each direction, between the device and the host
  double store_bytes_per_s = 1e9;    ///< in each direction, of the slow tier
};

/// Values leave the device where they are not read for long, as what forward makes for backward is, and come
/// back before their next reader: copies that begin as early as there is something to copy, or room for it,
/// and end at least one region of the model later, so that computing hides them (Rhu et al. 2016, arXiv
/// 1602.08124). Copies that take longer by the rates, one after the other, get longer where that makes the
/// arena no larger; else computing waits for them. Values below a sixteenth of the largest that qualifies
/// stay: a copy costs them more than they take. Comes after recompute_regions(); twice changes nothing more.
Program offload_activations(Program program, const OffloadOptions& options);
/// The same one tier farther: of what offload_activations() sent to the host, what is there for long goes on
/// to the slow tier, and comes back to the host before it is fetched. `options.share` is of that.
Program store_activations(Program program, const OffloadOptions& options);

/// Where each activation, input and workspace lies in one arena, and each value on the host in another.
/// Values whose lives overlap never share a byte.
struct MemoryPlan {
  static constexpr std::size_t kAlign = 256;
  static constexpr std::size_t kHostAlign = 4096;  ///< what the slow tier reads and writes
  static constexpr std::size_t kUnplaced = ~std::size_t{0};
  std::vector<std::size_t> offset;  ///< by ValueId; kUnplaced for what is in neither arena
  std::size_t arena_bytes = 0;
  std::size_t host_bytes = 0;
};
/// Greedy by size over exact lifetimes (Pisarchyk & Lee 2020, arXiv 2001.03288, Alg. 3); inputs and outputs
/// live throughout; an op that may run in place does where its input dies.
MemoryPlan plan_memory(const Program& program);

}  // namespace strata
