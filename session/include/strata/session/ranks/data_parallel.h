#pragma once

#include <cstdint>
#include <string_view>

#include <strata/chunk/layout.h>
#include <strata/parallel/device_mesh.h>
#include <strata/runtime/status.h>

namespace strata {

/// When the gradients of the ranks are added.
enum class GradientReduce : std::uint8_t {
  /// After every micro-batch, in micro-batch order, so that the bits do not depend on the number of ranks.
  each,
  /// After the last micro-batch: each rank's own sum, in rank order. Sends less if there are several
  /// micro-batches a rank; the bits depend on the number of ranks.
  once,
  /// The program that computes them adds them, as pipelines do (accumulate_over_ranks): when it ends, every
  /// rank has the sum of all ranks, with the bits of `each`.
  in_program,
};
std::string_view to_string(GradientReduce reduce) noexcept;

/// How the ranks of a run share its work and its states. All ranks have the same values except `rank`.
///
/// | zero | technique           | states (master, m, v) | step's gradient | parameters            |
/// | ---- | ------------------- | --------------------- | --------------- | --------------------- |
/// | 0    | DDP                 | whole                 | whole           | whole                 |
/// | 1    | ZeRO-1              | shard                 | whole, `once`   | gathered once a step  |
/// | 2    | ZeRO-2              | shard                 | shard           | gathered once a step  |
/// | 3    | ZeRO-3, FSDP, HSDP  | shard                 | shard           | gathered for each use |
///
/// Rajbhandari et al. 2020 (ZeRO); Zhao et al. 2023 (FSDP, HSDP).
struct DataParallel {
  std::int32_t ranks = 1, rank = 0;
  std::int32_t zero = 0;
  /// Ranks that hold one copy of the states together, with consecutive numbers; it divides `ranks`. 0: all.
  std::int32_t shard_ranks = 0;
  GradientReduce reduce = GradientReduce::each;
  std::int32_t gather_ahead = 2;  ///< chunks whose gather begins before the chunk in use is done
  // For forecasts:
  bool threads = false;         ///< the ranks are threads of one process
  std::int32_t on_machine = 1;  ///< ranks that share the rates of one machine's profile

  std::int32_t shards() const noexcept { return zero == 0 ? 1 : shard_ranks == 0 ? ranks : shard_ranks; }
  std::int32_t replicas() const noexcept { return ranks / shards(); }
  /// The part of each chunk's gradient that rank `of` sums: shards consist of consecutive parts.
  std::int32_t part(std::int32_t of) const noexcept { return of % shards() * replicas() + of / shards(); }
  bool sums_locally() const noexcept { return ranks > 1 && reduce == GradientReduce::once; }
  bool sums_in_program() const noexcept { return ranks > 1 && reduce == GradientReduce::in_program; }
  bool keeps_gathered() const noexcept { return shards() > 1 && zero < 3; }
};
/// Copies of the states along dp, the shards of a copy along fsdp.
Result<DeviceMesh> mesh_of(const DataParallel& ranks);
Sharding sharding_of(const DataParallel& ranks) noexcept;
/// Errors: `invalid`, naming the numbers.
Status check(const DataParallel& ranks, std::int32_t grad_accum);

}  // namespace strata
