#include <filesystem>

#include <fmt/format.h>

#include <strata/runtime/core_share.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "exit_code.h"
#include "load_config.h"
#include "machine/measure.h"
#include "machine/profile_cache.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

std::string rates_text(const MachineProfile& p) {
  std::string text =
      fmt::format("{}\n  products, 1e12 operations a second\n    {:<14}", p.name, "smallest side");
  for (const double size : p.product_sizes) text += fmt::format(" {:>8.0f}", size);
  for (const auto& [name, rates] : {std::pair{"bf16", &p.flops_16bit}, std::pair{"f32", &p.flops_f32}}) {
    text += fmt::format("\n    {:<14}", name);
    for (const double rate : *rates) text += fmt::format(" {:>8.3g}", rate * 1e-12);
  }
  const auto line = [&](const char* what, double value, const char* unit) {
    text += fmt::format("\n  {:<34} {:>8.3g} {}", what, value, unit);
  };
  line("attention", p.attention_flops_per_s * 1e-12, "e12 operations/s");
  line("norms, activations, sums", p.device_bytes_per_s * 1e-9, "GB/s");
  line("an instruction takes at least", p.launch_s * 1e6, "us");
  line("copies to the device", p.h2d_bytes_per_s * 1e-9, "GB/s");
  line("copies from the device", p.d2h_bytes_per_s * 1e-9, "GB/s");
  line("both ways at once", p.link_bytes_per_s * 1e-9, "GB/s");
  line("RAM, read and written", p.host_bytes_per_s * 1e-9, "GB/s");
  line("AdamW, states in fp32", p.update_s_per_param[0] * 1e9, "ns a parameter");
  line("AdamW, states in bf16", p.update_s_per_param[1] * 1e9, "ns a parameter");
  line("AdamW, states in int8", p.update_s_per_param[2] * 1e9, "ns a parameter");
  if (p.read_bytes_per_s > 0) {
    line("the slow tier, reads", p.read_bytes_per_s * 1e-9, "GB/s");
    line("the slow tier, writes", p.write_bytes_per_s * 1e-9, "GB/s");
    line("the slow tier, both at once", p.disk_bytes_per_s * 1e-9, "GB/s");
  } else {
    text += "\n  the slow tier was not measured: name its folder with --nvme-dir";
  }
  return text + "\n";
}

Result<MachineProfile> measure(const Args& args) {
  MeasureOptions options;
  STRATA_TRY_ASSIGN(options.share, share_of_this_process(args.environment, {}));
  if (!args.nvme_dir.empty()) options.nvme_dirs = {args.nvme_dir};
  options.quick = args.quick;
  options.backend = args.backend;
  options.tell = [&](const char* part) { print(args.err, str("strata bench: ", part, "\n")); };
  return measure_machine(options);
}

}  // namespace

int run_bench(const Args& args) {
  const DeviceKind device = args.backend == "cuda" ? DeviceKind::cuda : DeviceKind::host;
  const std::string path = args.out_dir.empty() ? profile_path(args.environment, device) : args.out_dir;
  if (path.empty())
    return print_error(
        args, "bench",
        Status::error(Code::invalid,
                      "neither HOME nor XDG_CACHE_HOME is set: say where to write with --out"));
  const auto profile = measure(args);
  if (!profile.has_value()) return print_error(args, "bench", profile.status());
  Io& io = posix_io();
  // What it wrote and could not read back would stop every plan.
  Status written = parse_machine_profile(to_toml(*profile), path).status();
  if (const std::string folder = std::filesystem::path(path).parent_path().string();
      written.is_ok() && !folder.empty())
    written = io.make_dirs(folder);
  if (written.is_ok()) written = write_text_atomically(io, path, to_toml(*profile));
  if (!written.is_ok()) return print_error(args, "bench", written.annotate(path));
  print(args.out, args.json ? to_json(*profile)
                            : rates_text(*profile) + str("written to ", path,
                                                         args.out_dir.empty()
                                                             ? ", where strata plan and train find it\n"
                                                             : "; --machine takes it\n"));
  return kExitOk;
}

}  // namespace strata::cli
