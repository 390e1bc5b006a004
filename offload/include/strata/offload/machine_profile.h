#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/chunk/types.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/backend/simulation.h>
#include <strata/runtime/state_format.h>
#include <strata/runtime/status.h>

namespace strata {

/// The rates and latencies of a machine, measured by `strata bench` or written by hand. Plans and simulations
/// use it; it changes no numerical result of a run. Units: seconds, bytes, and floating-point operations.
struct MachineProfile {
  std::string name;
  std::string gpu;     ///< part of the name of the GPUs that a shipped profile is of; empty in others
  std::string source;  ///< where the figures come from
  /// How strata bench measured; 0: the figures were not measured by it, or by a version that did not say.
  int format = 0;
  /// 2: AdamW and RAM are measured beyond the caches, attention in both directions.
  static constexpr int kMeasuredFormat = 2;
  int cores = 1;
  /// Whether the device is the host backend, whose work shares the cores and the memory of the CPU.
  bool device_is_host = false;
  std::array<std::uint64_t, kTiers> memory{};  ///< bytes that a run may use of each tier; nvme 0: no NVMe

  /// Rates of GEMMs whose smallest side is gemm_sizes[i] (ascending), interpolated logarithmically.
  std::vector<double> gemm_sizes, flops_16bit, flops_f32;
  std::vector<double> flops_8bit;  ///< may be empty: then 8-bit GEMMs run at the 16-bit rate
  /// Attention forward, by the host's kernel or mma; and by the other backends of a GPU
  /// (kernels/values/attention_backend.h), where 0 means that attention_flops_per_s applies.
  double attention_flops_per_s = 0, wgmma_attention_flops_per_s = 0, cudnn_attention_flops_per_s = 0;
  /// The same backward; 0: as forward.
  double attention_backward_flops_per_s = 0, wgmma_attention_backward_flops_per_s = 0,
         cudnn_attention_backward_flops_per_s = 0;
  double device_bytes_per_s = 0;  ///< the rate of ops that are not GEMMs, over all bytes they read and write
  double launch_s = 0;            ///< minimum time of any instruction
  double wake_s = 0;              ///< from the end of a wait for another queue until the waiting queue runs

  double h2d_bytes_per_s = 0, d2h_bytes_per_s = 0;
  double link_bytes_per_s = 0;  ///< total of both directions at once
  double link_latency_s = 0;

  double host_bytes_per_s = 0;  ///< RAM bandwidth, reads plus writes, all cores
  /// The time of AdamW on all cores, indexed by StateFormat.
  std::array<double, 3> update_s_per_param{};
  /// The time of AdamW with fp32 states while copies in both directions use the same RAM, and the total of
  /// these copies; 0: not known, and both are slowed alike.
  double update_beside_copies_s_per_param = 0, link_beside_update_bytes_per_s = 0;
  static constexpr double kAdamWBytesPerParam =
      26;  ///< RAM traffic of AdamW per parameter with exact (fp32) states

  double read_bytes_per_s = 0, write_bytes_per_s = 0;  ///< rates of the NVMe tier
  double disk_bytes_per_s = 0;                         ///< total of reads and writes at once
  double disk_latency_s = 0;
  double disk_cpu_s_per_byte = 0;  ///< core seconds to transfer a byte and compute its checksum

  /// The bytes that a rank sends per second in large collectives, and the time of a small one; 0: not known.
  /// The first line is for ranks that a launcher started as processes, measured with `network_ranks` of them,
  /// the second for ranks that are threads of one process.
  double network_bytes_per_s = 0, network_latency_s = 0, network_ranks = 0;
  double thread_network_bytes_per_s = 0, thread_network_latency_s = 0;
  /// The same of ranks of one node, of which there are `node_ranks`; 0: the rates above hold for all.
  double node_ranks = 0, node_bytes_per_s = 0, node_latency_s = 0;
  struct Network {
    double bytes_per_s = 0, latency_s = 0;
  };
  /// The rates of ranks that are threads, or of those that are processes; if only the rate of the other kind
  /// is known, that one. A forecast takes collectives as free if the rate is 0.
  Network network(bool threads) const noexcept;

  /// Series that help to set cpu.threads, offload.chunk, io.block or io.queue_depth by hand;
  /// forecasts use only the figures above. Each may be empty. A series named `x_by_y` has one value for each
  /// element of y, which ascends.
  std::vector<double> update_threads, update_s_by_threads;  ///< AdamW with fp32 states, seconds per parameter
  std::vector<double> copy_sizes;                           ///< bytes of one copy in a sequence of copies
  std::vector<double> h2d_by_size, d2h_by_size;             ///< bytes/s, from or to pinned memory
  std::vector<double> h2d_pageable_by_size, d2h_pageable_by_size;  ///< from or to pageable memory
  std::vector<std::string> disk_paths;                             ///< directories
  std::vector<double> disk_blocks, disk_depths;                    ///< bytes of a block; blocks in flight
  /// Bytes/s of each path with each block size and each depth; disk_index() gives the order.
  std::vector<double> reads_by_path, writes_by_path;

  std::size_t disk_index(std::size_t path, std::size_t block, std::size_t depth) const noexcept {
    return (path * disk_blocks.size() + block) * disk_depths.size() + depth;
  }

  /// The profile of one of `n` equal users that keep the machine busy together: all rates of computing,
  /// copying and storing are an n-th. The network's, which were measured with several, stay.
  MachineProfile shared_by(int n) const;
  double gemm_flops_per_s(DType dtype, double smallest_side) const noexcept;
  /// Rates and resource shares of the transfer lanes of a simulated machine. Work on the other lanes carries
  /// its own time, computed by whoever queues it.
  SimOptions simulation() const noexcept;
};

/// What the source of a profile begins with that strata bench measured.
inline constexpr std::string_view kMeasuredSource = "measured by strata bench";
/// Parses TOML (or JSON if `origin` ends in .json). Errors: `invalid` with all problems at once, each with
/// its key and the values that are allowed; `unsupported` for one that a version of strata bench measured in
/// another way.
Result<MachineProfile> parse_machine_profile(const std::string& text, const std::string& origin);
Result<MachineProfile> read_machine_profile(const std::string& path);
/// Parsing the text returns the same profile.
std::string to_toml(const MachineProfile& profile);
std::string to_json(const MachineProfile& profile);

/// A profile that is shipped with strata, written from published figures of such a machine; its `source`
/// names them.
struct ShippedMachine {
  std::string_view name;
  std::string_view toml;
};
const std::vector<ShippedMachine>& shipped_machines() noexcept;
/// The shipped profile of a GPU by the name that its driver gives: "NVIDIA H100 80GB HBM3". Its memory and
/// cores are those of the machine that it was written for. Nothing if there is none.
std::optional<MachineProfile> shipped_profile_of_gpu(std::string_view gpu);
/// Returns the shipped profile of that name, or reads a file. Errors: `not_found` with the shipped names, and
/// the errors of parse_machine_profile.
Result<MachineProfile> load_machine_profile(const std::string& name_or_path);

}  // namespace strata
