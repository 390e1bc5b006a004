#include <strata/offload/machine_profile.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/str.h>
#include <strata/runtime/config/suggest.h>

namespace strata {

double MachineProfile::gemm_flops_per_s(DType dtype, double smallest_side) const noexcept {
  const bool in_8bit = size_of(dtype) == 1 && !flops_8bit.empty();
  const std::vector<double>& rates = dtype == DType::f32 ? flops_f32 : in_8bit ? flops_8bit : flops_16bit;
  const auto above = std::lower_bound(gemm_sizes.begin(), gemm_sizes.end(), smallest_side);
  if (above == gemm_sizes.end()) return rates.back();
  const auto i = static_cast<std::size_t>(above - gemm_sizes.begin());
  // Below the smallest measured size the rate falls in proportion, since a GEMM reuses that much less.
  if (i == 0) return rates.front() * std::max(smallest_side, 1.0) / gemm_sizes.front();
  const double share =
      std::log(smallest_side / gemm_sizes[i - 1]) / std::log(gemm_sizes[i] / gemm_sizes[i - 1]);
  return rates[i - 1] * std::pow(rates[i] / rates[i - 1], share);
}

MachineProfile MachineProfile::shared_by(int n) const {
  MachineProfile p = *this;
  p.cores = std::max(1, cores / n);
  for (auto list : {&MachineProfile::flops_16bit, &MachineProfile::flops_f32, &MachineProfile::flops_8bit})
    for (double& rate : p.*list) rate /= n;
  for (auto rate :
       {&MachineProfile::attention_flops_per_s, &MachineProfile::wgmma_attention_flops_per_s,
        &MachineProfile::cudnn_attention_flops_per_s, &MachineProfile::attention_backward_flops_per_s,
        &MachineProfile::wgmma_attention_backward_flops_per_s,
        &MachineProfile::cudnn_attention_backward_flops_per_s, &MachineProfile::device_bytes_per_s,
        &MachineProfile::h2d_bytes_per_s, &MachineProfile::d2h_bytes_per_s, &MachineProfile::link_bytes_per_s,
        &MachineProfile::host_bytes_per_s, &MachineProfile::read_bytes_per_s,
        &MachineProfile::write_bytes_per_s, &MachineProfile::disk_bytes_per_s})
    p.*rate /= n;
  for (double& seconds : p.update_s_per_param) seconds *= n;
  p.update_beside_copies_s_per_param *= n;
  p.link_beside_update_bytes_per_s /= n;
  return p;
}

MachineProfile::Network MachineProfile::network(bool threads) const noexcept {
  const Network of_processes{network_bytes_per_s, network_latency_s},
      of_threads{thread_network_bytes_per_s, thread_network_latency_s};
  const Network& wanted = threads ? of_threads : of_processes;
  return wanted.bytes_per_s > 0 ? wanted : threads ? of_processes : of_threads;
}

SimOptions MachineProfile::simulation() const noexcept {
  SimOptions o;
  o.rate(SimLane::h2d) = {h2d_bytes_per_s, link_latency_s};
  o.rate(SimLane::d2h) = {d2h_bytes_per_s, link_latency_s};
  o.rate(SimLane::nvme_read) = {read_bytes_per_s, disk_latency_s};
  o.rate(SimLane::nvme_write) = {write_bytes_per_s, disk_latency_s};
  // Two directions that reach `both` in total when they run at once take such shares of their resource that
  // each is slowed by the same factor.
  const auto share_of = [](double one, double other, double both) {
    return both > 0 ? (one + other) / (2 * both) : 0;
  };
  o.share(SimLane::h2d, SimResource::link) = o.share(SimLane::d2h, SimResource::link) =
      share_of(h2d_bytes_per_s, d2h_bytes_per_s, link_bytes_per_s);
  o.share(SimLane::nvme_read, SimResource::disk) = o.share(SimLane::nvme_write, SimResource::disk) =
      share_of(read_bytes_per_s, write_bytes_per_s, disk_bytes_per_s);
  const auto of_memory = [&](double bytes_per_s) { return std::min(1.0, bytes_per_s / host_bytes_per_s); };
  o.share(SimLane::cpu, SimResource::memory) = of_memory(kAdamWBytesPerParam / update_s_per_param[0]);
  o.share(SimLane::h2d, SimResource::memory) = of_memory(h2d_bytes_per_s);
  o.share(SimLane::d2h, SimResource::memory) = of_memory(d2h_bytes_per_s);
  // Copies by a device and updates by cores do not yield to each other equally.
  const double asked = o.share(SimLane::cpu, SimResource::memory) +
                       o.share(SimLane::h2d, SimResource::memory) +
                       o.share(SimLane::d2h, SimResource::memory);
  const auto yield_of = [&](double factor) { return std::max(0.0, factor - 1) / (asked - 1); };
  if (asked > 1 && update_beside_copies_s_per_param > 0)
    o.memory_yield(SimLane::cpu) = yield_of(update_beside_copies_s_per_param / update_s_per_param[0]);
  if (asked > 1 && link_beside_update_bytes_per_s > 0)
    o.memory_yield(SimLane::h2d) = o.memory_yield(SimLane::d2h) =
        yield_of((h2d_bytes_per_s + d2h_bytes_per_s) / link_beside_update_bytes_per_s);
  o.share(SimLane::cpu, SimResource::cores) = 1;
  for (const auto& [lane, rate] :
       {std::pair{SimLane::nvme_read, read_bytes_per_s}, std::pair{SimLane::nvme_write, write_bytes_per_s}}) {
    o.share(lane, SimResource::memory) = of_memory(rate);
    o.share(lane, SimResource::cores) = std::min(1.0, rate * disk_cpu_s_per_byte / cores);
  }
  if (device_is_host) {
    o.share(SimLane::compute, SimResource::cores) = 1;
    o.share(SimLane::collective, SimResource::cores) = 1.0 / cores;
    // A copy occupies a core, and reads and writes each byte in the same memory.
    for (const SimLane lane : {SimLane::h2d, SimLane::d2h}) {
      o.share(lane, SimResource::cores) = 1.0 / cores;
      o.share(lane, SimResource::memory) = std::min(1.0, 2 * o.share(lane, SimResource::memory));
    }
  }
  o.launch_overhead_s = 1e-6;
  o.wake_s = wake_s;
  return o;
}

std::optional<MachineProfile> shipped_profile_of_gpu(std::string_view gpu) {
  std::optional<MachineProfile> best;
  for (const ShippedMachine& machine : shipped_machines()) {
    MachineProfile profile =
        must(parse_machine_profile(std::string(machine.toml), std::string(machine.name)));
    if (profile.gpu.empty() || gpu.find(profile.gpu) == std::string_view::npos) continue;
    // "GH200" says more than "H200".
    if (!best || profile.gpu.size() > best->gpu.size()) best = std::move(profile);
  }
  return best;
}

Result<MachineProfile> load_machine_profile(const std::string& name_or_path) {
  std::vector<std::string_view> names;
  for (const ShippedMachine& machine : shipped_machines()) {
    if (machine.name == name_or_path)
      return parse_machine_profile(std::string(machine.toml), str(machine.name, ".toml"));
    names.push_back(machine.name);
  }
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml") ||
      name_or_path.ends_with(".json"))
    return read_machine_profile(name_or_path);
  return Status::error(
      Code::not_found,
      fmt::format(
          "no machine profile '{}'; shipped are {}; a path to a .toml or .json file is accepted too{}",
          name_or_path, fmt::join(names, ", "), did_you_mean(name_or_path, names)));
}

}  // namespace strata
