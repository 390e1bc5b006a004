#include <span>

#include <fmt/format.h>

#include <strata/parallel/agree.h>
#include <strata/profile/compute_device.h>
#include <strata/profile/measure.h>
#include <strata/profile/measure_network.h>
#include <strata/plan/starter_config.h>
#include <strata/profile/profile_cache.h>
#include <strata/runtime/io/output_file.h>
#include <strata/runtime/str.h>
#include <strata/runtime/threads/core_share.h>
#include <strata/runtime/units.h>

#include "exit_code.h"
#include "launched_world.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr int kLabel = 34;

// Lines of a table: the header with the columns, and a row with a label and a value for each column.
std::string columns(std::string_view label, std::span<const double> values, double unit) {
  std::string text = fmt::format("\n    {:<{}}", label, kLabel - 2);
  for (const double value : values) text += fmt::format(" {:>8.0f}", value / unit);
  return text;
}
std::string row(std::string_view label, std::span<const double> values, double unit) {
  std::string text = fmt::format("\n    {:<{}}", label, kLabel - 2);
  for (const double value : values) text += fmt::format(" {:>8.3g}", value / unit);
  return text;
}

std::string gemm_rates_text(const MachineProfile& p) {
  return "\n  GEMM, TFLOP/s" + columns("smallest dimension", p.gemm_sizes, 1) +
         row("bf16", p.flops_16bit, 1e12) + row("f32", p.flops_f32, 1e12) +
         (p.flops_8bit.empty() ? "" : row("fp8", p.flops_8bit, 1e12));
}

std::string copies_text(const MachineProfile& p) {
  return "\n  single copies, GB/s" + columns("size, KiB", p.copy_sizes, 1024) +
         row("pinned to device", p.h2d_by_size, 1e9) + row("device to pinned", p.d2h_by_size, 1e9) +
         row("pageable to device", p.h2d_pageable_by_size, 1e9) +
         row("device to pageable", p.d2h_pageable_by_size, 1e9);
}

std::string disk_text(const MachineProfile& p) {
  std::string text;
  for (std::size_t path = 0; path < p.disk_paths.size(); ++path)
    for (const auto& [what, rates] :
         {std::pair{"reads", &p.reads_by_path}, std::pair{"writes", &p.writes_by_path}}) {
      text += str("\n  ", what, " of ", p.disk_paths[path], ", GB/s") +
              columns("blocks in flight (io.queue_depth)", p.disk_depths, 1);
      for (std::size_t block = 0; block < p.disk_blocks.size(); ++block)
        text += row(str("io.block=", format_bytes(static_cast<std::uint64_t>(p.disk_blocks[block]))),
                    std::span(*rates).subspan(p.disk_index(path, block, 0), p.disk_depths.size()), 1e9);
    }
  return text;
}

std::string network_text(const MachineProfile& p) {
  std::string text;
  const auto lines = [&](const std::string& ranks, double bytes_per_s, double latency_s) {
    if (bytes_per_s <= 0) return;
    text += fmt::format("\n  {:<{}} {:>8.3g} GB/s", "sent by each of " + ranks, kLabel, bytes_per_s * 1e-9);
    text += fmt::format("\n  {:<{}} {:>8.3g} us", "small collective of " + ranks, kLabel, latency_s * 1e6);
  };
  lines("2 threads", p.thread_network_bytes_per_s, p.thread_network_latency_s);
  lines(fmt::format("{:.0f} processes", p.network_ranks), p.network_bytes_per_s, p.network_latency_s);
  return text;
}

std::string rates_text(const MachineProfile& p) {
  std::string text = p.name + gemm_rates_text(p);
  const auto line = [&](const char* what, double value, const char* unit) {
    text += fmt::format("\n  {:<{}} {:>8.3g} {}", what, kLabel, value, unit);
  };
  for (const auto& [what, rate] :
       {std::pair{"attention, forward", p.attention_flops_per_s},
        std::pair{"attention, backward", p.attention_backward_flops_per_s},
        std::pair{"attention by wgmma, forward", p.wgmma_attention_flops_per_s},
        std::pair{"attention by wgmma, backward", p.wgmma_attention_backward_flops_per_s},
        std::pair{"attention by cudnn, forward", p.cudnn_attention_flops_per_s},
        std::pair{"attention by cudnn, backward", p.cudnn_attention_backward_flops_per_s}})
    if (rate > 0) line(what, rate * 1e-12, "TFLOP/s");
  line("memory-bound kernels", p.device_bytes_per_s * 1e-9, "GB/s");
  line("minimum time of a kernel", p.launch_s * 1e6, "us");
  line("copies to the device", p.h2d_bytes_per_s * 1e-9, "GB/s");
  line("copies from the device", p.d2h_bytes_per_s * 1e-9, "GB/s");
  line("copies in both directions at once", p.link_bytes_per_s * 1e-9, "GB/s");
  text += copies_text(p);
  line("RAM, read and written", p.host_bytes_per_s * 1e-9, "GB/s");
  line("AdamW, states in fp32", p.update_s_per_param[0] * 1e9, "ns/parameter");
  if (p.update_beside_copies_s_per_param > 0)
    line("AdamW beside copies both ways", p.update_beside_copies_s_per_param * 1e9, "ns/parameter");
  line("AdamW, states in bf16", p.update_s_per_param[1] * 1e9, "ns/parameter");
  line("AdamW, states in int8", p.update_s_per_param[2] * 1e9, "ns/parameter");
  text += "\n  AdamW by threads" + columns("threads (cpu.threads)", p.update_threads, 1) +
          row("states in fp32, ns/parameter", p.update_s_by_threads, 1e-9);
  if (p.read_bytes_per_s > 0) {
    line("NVMe tier, reads", p.read_bytes_per_s * 1e-9, "GB/s");
    line("NVMe tier, writes", p.write_bytes_per_s * 1e-9, "GB/s");
    line("NVMe tier, both at once", p.disk_bytes_per_s * 1e-9, "GB/s");
    text += disk_text(p);
  } else {
    text += "\n  the NVMe tier was not measured; name its directory with --nvme-dir";
  }
  return text + network_text(p) + "\n";
}

// Runs compute on a GPU if there is one.
std::string backend_of(const Args& args) { return args.backend == "auto" ? starter_backend() : args.backend; }

MeasureOptions measure_options(const Args& args) {
  MeasureOptions options;
  options.environment = args.environment;
  options.nvme_dirs = args.nvme_dirs;
  options.quick = args.quick;
  options.backend = backend_of(args);
  options.report = [&](std::string_view what) { print(args.err, str("strata bench: ", what, "\n")); };
  return options;
}

void copy_network(const MachineProfile& from, MachineProfile& to) {
  to.network_bytes_per_s = from.network_bytes_per_s;
  to.network_latency_s = from.network_latency_s;
  to.network_ranks = from.network_ranks;
}

// Measures everything that one process can. The rates of ranks that a launcher starts are those of the
// profile that is replaced, if it is of this machine.
Result<MachineProfile> measure_alone(const Args& args, const std::string& path) {
  STRATA_TRY_ASSIGN(MachineProfile profile, measure_machine(measure_options(args)));
  const auto before = load_cached_profile(posix_io(), path, profile.name);
  if (before.has_value() && before->profile && before->warning.empty())
    copy_network(*before->profile, profile);
  else if (before.has_value() && !before->profile && !before->warning.empty())
    print(args.err, str("strata bench: ", before->warning, "; if ranks were measured, start them again\n"));
  return profile;
}

// Rank 0 has the profile of the whole machine, which a process of several cannot measure.
Status read_profile(const std::string& path, World& world, MachineProfile& profile) {
  if (world.rank() > 0) return {};
  if (!posix_io().exists(path))
    return Status::error(Code::invalid,
                         str("there is no machine profile ", path, " to which ", world.size(),
                             " ranks could add how fast they exchange data; first run strata bench "
                             "without a launcher"));
  STRATA_TRY_ASSIGN(profile, read_machine_profile(path));
  return {};
}

// Measures how the ranks exchange data. Of ranks other than 0, only the status matters.
Result<MachineProfile> measure_ranks(const Args& args, const std::string& path, World& world) {
  MachineProfile profile;
  MeasureOptions options = measure_options(args);
  if (world.rank() > 0) options.report = [](std::string_view) {};
  STRATA_TRY(agree(&world, read_profile(path, world, profile)));
  STRATA_TRY_ASSIGN(const LocalRank local, local_rank(args.environment));
  options.gpu = gpu_of_local_rank(local.rank);
  options.report(str("the network of ", world.size(), " ranks"));
  STRATA_TRY_ASSIGN(const NetworkRate rate, measure_network(options, world));
  profile.network_bytes_per_s = rate.bytes_per_s;
  profile.network_latency_s = rate.latency_s;
  profile.network_ranks = world.size();
  STRATA_TRY(world.all_gather("").status());  // no rank ends before all have measured
  return profile;
}

}  // namespace

int run_bench(const Args& args) {
  const DeviceKind device = backend_of(args) == "cuda" ? DeviceKind::cuda : DeviceKind::host;
  const std::string path = args.out_dir.empty() ? profile_path(args.environment, device) : args.out_dir;
  if (path.empty())
    return print_error(
        args, "bench",
        Status::error(Code::invalid,
                      "neither HOME nor XDG_CACHE_HOME is set; name the file to write with --out"));
  const OutputFile output{"--out", path, "a machine profile"};
  if (const Status may = check_output(
          output,
          [&](std::string_view) {
            const auto found = load_machine_profile(path);  // unsupported: an earlier version measured it
            return found.has_value() || found.status().code() == Code::unsupported;
          });
      !args.out_dir.empty() && !may.is_ok())
    return print_error(args, "bench", may);
  const auto world = open_launched_world(args);
  if (!world.has_value()) return print_error(args, "bench", world.status());
  const auto profile = *world == nullptr ? measure_alone(args, path) : measure_ranks(args, path, **world);
  if (!profile.has_value()) return print_error(args, "bench", profile.status());
  if (*world != nullptr && (*world)->rank() > 0) return kExitOk;
  if (const Status written = store_profile(posix_io(), *profile, path); !written.is_ok())
    return print_error(args, "bench", written.annotate(path));
  print(args.out, args.json ? to_json(*profile)
                            : rates_text(*profile) + str("written to ", path,
                                                         args.out_dir.empty()
                                                             ? ", where strata plan and train look for it\n"
                                                             : "; use it with --machine\n"));
  return kExitOk;
}

}  // namespace strata::cli
