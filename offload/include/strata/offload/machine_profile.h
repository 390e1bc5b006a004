#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/chunk/types.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/simulation.h>
#include <strata/runtime/state_format.h>
#include <strata/runtime/status.h>

namespace strata {

/// What a machine does in a second: what `strata bench` measures, or a person writes down. Plans and
/// simulations start from it; no result of a run depends on it. Seconds, bytes, and floating-point
/// operations.
struct MachineProfile {
  std::string name;
  std::string source;  ///< where the figures are from: for people
  int cores = 1;
  /// Whether the device is the host backend, whose work shares the cores and the memory of the CPU.
  bool device_is_host = false;
  std::array<std::uint64_t, kTiers> memory{};  ///< that a run may use of each tier; nvme 0: none

  /// Rates of products whose smallest side is gemm_sizes[i] (ascending); between them by the logarithm.
  std::vector<double> gemm_sizes, flops_16bit, flops_f32;
  std::vector<double> flops_8bit;  ///< may be empty: as of 16 bits
  double attention_flops_per_s = 0;
  /// By what it may be asked to multiply by instead (kernels/attention.h); 0: not known, as without.
  double wgmma_attention_flops_per_s = 0, cudnn_attention_flops_per_s = 0;
  double device_bytes_per_s = 0;  ///< of what is no product: all its operands, read or written
  double launch_s = 0;            ///< that any instruction takes at least
  double wake_s = 0;              ///< until a queue that waited for another goes on

  double h2d_bytes_per_s = 0, d2h_bytes_per_s = 0;
  double link_bytes_per_s = 0;  ///< of both directions at once, added up
  double link_latency_s = 0;

  double host_bytes_per_s = 0;  ///< of RAM, read and written by all cores
  /// Of AdamW on all cores, by StateFormat.
  std::array<double, 3> update_s_per_param{};
  static constexpr double kAdamWBytesPerParam =
      26;  ///< of RAM that it moves for a parameter in the exact format

  double read_bytes_per_s = 0, write_bytes_per_s = 0;  ///< of the slow tier
  double disk_bytes_per_s = 0;                         ///< of both at once, added up
  double disk_latency_s = 0;
  double disk_cpu_s_per_byte = 0;  ///< that carrying and summing a byte takes of a core

  /// Series beside the figures, for whoever sets cpu.threads, offload.chunk, io.block or io.queue_depth by
  /// hand: forecasts start from the figures alone. Each may be empty; what is `by` something has a value for
  /// each of that, which ascends.
  std::vector<double> update_threads, update_s_by_threads;  ///< AdamW with states in fp32, s a parameter
  std::vector<double> copy_sizes;                           ///< bytes of one copy after the other
  std::vector<double> h2d_by_size, d2h_by_size;             ///< bytes/s, of pinned memory
  std::vector<double> h2d_pageable_by_size, d2h_pageable_by_size;  ///< of memory that is not pinned
  std::vector<std::string> disk_paths;                             ///< folders
  std::vector<double> disk_blocks, disk_depths;                    ///< bytes of a block; blocks in flight
  /// Bytes/s of each path at each block at each depth, in this order: see disk_index().
  std::vector<double> reads_by_path, writes_by_path;

  std::size_t disk_index(std::size_t path, std::size_t block, std::size_t depth) const noexcept {
    return (path * disk_blocks.size() + block) * disk_depths.size() + depth;
  }

  double gemm_flops_per_s(DType dtype, double smallest_side) const noexcept;
  /// The rates and the shares of a simulated machine; work of the other lanes is priced by who queues it.
  SimOptions simulation() const noexcept;
};

/// From TOML (or JSON, where `origin` ends in .json). Errors: `invalid`, all problems at once, each naming
/// the key and what it has to be.
Result<MachineProfile> parse_machine_profile(const std::string& text, const std::string& origin);
Result<MachineProfile> read_machine_profile(const std::string& path);
/// Parsed again it gives the same profile.
std::string to_toml(const MachineProfile& profile);
std::string to_json(const MachineProfile& profile);

/// Profiles that come with strata, written down from what is published of such machines; `source` says where.
struct ShippedMachine {
  std::string_view name;
  std::string_view toml;
};
const std::vector<ShippedMachine>& shipped_machines() noexcept;
/// One of these, or a file. Errors: `not_found` with the names there are, and those of parse_machine_profile.
Result<MachineProfile> load_machine_profile(const std::string& name_or_path);

}  // namespace strata
