#include <strata/profile/forecast_text.h>

#include <fmt/format.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/profile/stalls.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

/// The lane that is busy for most of the step: no order of its work makes the step shorter than that.
std::string binding_text(const Forecast& f, const MachineProfile& machine) {
  const LaneFields* busiest = kLaneFields.data();
  for (const LaneFields& lane : kLaneFields)
    if (f.lanes.*lane.seconds > f.lanes.*busiest->seconds) busiest = &lane;
  const double share = f.lanes.*busiest->seconds / f.step_s;
  constexpr double kWaits = 0.6;
  if (share < kWaits)
    return fmt::format("no lane binds: {}, the busiest one, works for {:.1f} % of the step\n", busiest->name,
                       100 * share);
  const auto rate = [](double bytes_per_s) { return fmt::format("{:.3g} GB/s", bytes_per_s * 1e-9); };
  const auto name = busiest->seconds;
  const std::string what =
      name == &LaneBusySeconds::compute ? "compute"
      : name == &LaneBusySeconds::h2d   ? "copies to the device, " + rate(machine.h2d_bytes_per_s)
      : name == &LaneBusySeconds::d2h   ? "copies from the device, " + rate(machine.d2h_bytes_per_s)
      : name == &LaneBusySeconds::cpu
          ? "updates on the CPU, whose RAM gives " + rate(machine.host_bytes_per_s) + " to them and to copies"
      : name == &LaneBusySeconds::nvme_read  ? "reads of nvme, " + rate(machine.read_bytes_per_s)
      : name == &LaneBusySeconds::nvme_write ? "writes to nvme, " + rate(machine.write_bytes_per_s)
                                             : "collectives";
  return fmt::format("bound by {}: busy for {:.1f} % of the step\n", what, 100 * share);
}

}  // namespace

std::string forecast_text(const Forecast& f, const MachineProfile& machine, double tokens,
                          std::optional<double> clipped_step_s) {
  std::string text = fmt::format("forecast for {} ({})\n", machine.name, machine.source);
  text += fmt::format("  {:<11} {:>10} {:>8} {:>12}\n", "lane", "busy", "of step", "bytes");
  for (const LaneFields& lane : kLaneFields) {
    const double seconds = f.lanes.*lane.seconds;
    if (seconds <= 0) continue;
    text +=
        fmt::format("  {:<11} {:>8.4g} s {:>6.1f} % {:>12}\n", lane.name, seconds, 100 * seconds / f.step_s,
                    lane.bytes != nullptr ? format_bytes(f.moved.*lane.bytes) : "");
  }
  text += fmt::format("  {:<11} {:>8.4g} s, {:.4g} tokens/s\n", "step", f.step_s, tokens / f.step_s);
  if (clipped_step_s)
    text += fmt::format("  {:<11} {:>8.4g} s, {:.4g} tokens/s if the gradient of every step is clipped\n",
                        "clipped", *clipped_step_s, tokens / *clipped_step_s);
  return text + binding_text(f, machine) + bottleneck_text(f.times) + "\n";
}

std::string unmodeled_text(const LoweredProgram& program, const MachineProfile& machine) {
  bool wgmma = false, cudnn = false, fp8 = false;
  for (const LoweredInstr& instr : program.code) {
    if (const auto* attention = instr.attrs.get_if<AttentionAttrs>()) {
      wgmma = wgmma || attention->backend == AttentionBackend::wgmma;
      cudnn = cudnn || attention->backend == AttentionBackend::cudnn;
    }
    fp8 = fp8 || instr.op == Op::fp8_gemm;
  }
  std::string text;
  const char* const hint = machine.device_is_host ? "" : " (strata bench measures it)";
  const auto line = [&](bool has, bool is_known, const char* what, const char* as) {
    if (has && !is_known)
      text += fmt::format("{} is forecast as {}: the profile has no rate for it{}\n", what, as, hint);
  };
  line(wgmma, machine.wgmma_attention_flops_per_s > 0, "wgmma attention", "mma attention");
  line(cudnn, machine.cudnn_attention_flops_per_s > 0, "cuDNN attention", "mma attention");
  line(fp8, !machine.flops_8bit.empty(), "FP8 GEMM", "16-bit GEMM");
  return text;
}

std::string network_text(const SessionOptions& options, const MachineProfile& machine) {
  const DataParallel& ranks = options.ranks;
  const std::int32_t all = ranks.ranks * options.model.ranks();
  if (all == 1) return {};
  const auto [bytes_per_s, latency_s] = machine.network(ranks.threads);
  if (bytes_per_s <= 0)
    return fmt::format(
        "collectives are taken as free: the profile has no rate of the network (mpirun -np {} strata bench "
        "measures it)\n",
        all);
  const bool of_threads = bytes_per_s == machine.thread_network_bytes_per_s;
  return fmt::format(
      "network     {:.3g} GB/s sent by each rank, {:.3g} us for a small collective; measured with {}\n",
      bytes_per_s * 1e-9, latency_s * 1e6,
      of_threads                   ? std::string("ranks as threads")
      : machine.network_ranks >= 2 ? fmt::format("{:.0f} processes", machine.network_ranks)
                                   : std::string("processes"));
}

std::string forecast_json(const Forecast& f, const MachineProfile& machine, double tokens,
                          std::optional<double> clipped_step_s) {
  std::string lanes;
  for (const LaneFields& lane : kLaneFields)
    lanes += fmt::format("{}\"{}\": {{\"busy_s\": {:.9g}, \"bytes\": {}}}", lanes.empty() ? "" : ", ",
                         lane.name, f.lanes.*lane.seconds, lane.bytes != nullptr ? f.moved.*lane.bytes : 0);
  return fmt::format(
      "{{\"machine\": {}, \"step_s\": {:.9g}, \"clipped_step_s\": {:.9g}, \"tokens_per_s\": {:.6g}, "
      "\"speculated_share\": {:.4f}, {}, "
      "\"lanes\": {{{}}}}}",
      json_string(machine.name), f.step_s, clipped_step_s.value_or(f.step_s), tokens / f.step_s,
      f.speculated_share, stalls_json(f.times), lanes);
}

}  // namespace strata
