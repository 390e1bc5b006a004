#include <strata/plan/plan_text.h>

#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/simd/isa.h>
#include <strata/model/decoder.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/session/ranks/rank_traffic.h>
#include <strata/plan/subspaces.h>
#include <strata/config/train_config.h>
#include <strata/plan/write_budget.h>
#include <strata/config/model_choice.h>

#include "text/split_text.h"

namespace strata {
namespace {

std::string budget_text(std::uint64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : format_bytes(bytes);
}

/// "5.03 M", "7.01 B".
std::string count_text(std::int64_t n) {
  return n < 1'000'000'000 ? fmt::format("{:.2f} M", static_cast<double>(n) * 1e-6)
                           : fmt::format("{:.2f} B", static_cast<double>(n) * 1e-9);
}

/// Bytes of the parameters, masters and moments of all chunks, and the elements of the chunks, including
/// unused ones.
struct StateTotals {
  std::int64_t elems = 0;
  std::uint64_t bytes = 0;
};
StateTotals sum_states(const RunPlan& plan) {
  StateTotals totals;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
    totals.elems += plan.layout.chunk(chunk).n_elems;
    for (const Payload payload : kPersistentPayloads)
      totals.bytes += plan.layout.payload_bytes(chunk, payload);
  }
  return totals;
}

struct TierHomes {
  std::size_t payloads = 0;
  std::uint64_t bytes = 0;
};
TierHomes homes_in(const RunPlan& plan, Tier tier) {
  TierHomes homes;
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    for (std::size_t p = 0; p < kPayloads; ++p)
      if (plan.placement.homes[chunk][p] == tier) {
        ++homes.payloads;
        homes.bytes += plan.layout.payload_bytes(chunk, static_cast<Payload>(p));
      }
  return homes;
}

// Home bytes by payload and tier: {"param": {"device": 0, "pinned": 0, "nvme": 0}, ...}.
std::string homes_json(const RunPlan& plan) {
  std::array<std::array<std::uint64_t, kTiers>, kPayloads> bytes{};
  for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk)
    for (std::size_t p = 0; p < kPayloads; ++p)
      if (const auto& home = plan.placement.homes[chunk][p])
        bytes[p][static_cast<std::size_t>(*home)] +=
            plan.layout.payload_bytes(chunk, static_cast<Payload>(p));
  std::string text;
  const std::size_t shown =
      plan.options.ranks.ranks == 1 ? static_cast<std::size_t>(Payload::gathered) : kPayloads;
  for (std::size_t p = 0; p < shown; ++p) {
    text += str(text.empty() ? "" : ", ", "\"", to_string(static_cast<Payload>(p)), "\": {");
    for (std::size_t t = 0; t < kTiers; ++t)
      text += str(t == 0 ? "" : ", ", "\"", to_string(static_cast<Tier>(t)), "\": ", bytes[p][t]);
    text += "}";
  }
  return "{" + text + "}";
}

// The home of each chunk's payloads, a letter for each chunk: {"param": "ddpn", ...}; '-' where it has none.
std::string chunk_homes_json(const RunPlan& plan) {
  std::string text;
  for (std::size_t p = 0; p < kPayloads; ++p) {
    std::string tiers;
    for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
      const auto& home = plan.placement.homes[chunk][p];
      tiers += home ? to_string(*home).front() : '-';
    }
    if (tiers.find_first_not_of('-') == std::string::npos) continue;
    text += str(text.empty() ? "" : ", ", "\"", to_string(static_cast<Payload>(p)), "\": \"", tiers, "\"");
  }
  return "{" + text + "}";
}

// The attention backends of a program for a GPU, if they are not the default (mma).
std::string attention_text(const LoweredProgram& train) {
  const auto by = [&](Op op) {
    for (const LoweredInstr& instr : train.code)
      if (instr.op == op) return instr.attrs.as<AttentionAttrs>().backend;
    return AttentionBackend::host;
  };
  const AttentionBackend forward = by(Op::attention), backward = by(Op::attention_backward);
  if (forward == AttentionBackend::host || (forward == AttentionBackend::mma && backward == forward))
    return "";
  return str(", attention by ", to_string(forward),
             backward == forward ? "" : str(" and backward by ", to_string(backward)));
}

// The bytes of each chunk's payloads: {"param": [131072, ...], ...}. Those of one size share the slots of a
// tier.
std::string chunk_bytes_json(const RunPlan& plan) {
  std::string text;
  for (std::size_t p = 0; p < kPayloads; ++p) {
    const auto payload = static_cast<Payload>(p);
    std::string sizes;
    bool any = false;
    for (ChunkId chunk = 0; chunk < plan.layout.n_chunks(); ++chunk) {
      const std::size_t bytes = plan.layout.payload_bytes(chunk, payload);
      sizes += str(sizes.empty() ? "" : ", ", bytes);
      any = any || bytes > 0;
    }
    if (any) text += str(text.empty() ? "" : ", ", "\"", to_string(payload), "\": [", sizes, "]");
  }
  return "{" + text + "}";
}

// The memory that each program needs on the device beside chunks: its activations, and the states of
// sequences that it continues.
std::string programs_json(const RunPlan& plan) {
  std::string text;
  for (const PlannedProgram& planned : plan.programs)
    text += str(text.empty() ? "" : ", ", "{\"name\": \"", planned.name, "\", \"role\": \"",
                to_string(planned.role), "\", \"activation_bytes\": ", planned.program.arena_bytes,
                ", \"sequence_bytes\": ", planned.program.state_bytes, "}");
  return "[" + text + "]";
}

// Which modules have adapters, by the last parts of their names. The plan has already found them all.
std::string adapter_text(const TrainConfig& c, const DecoderConfig& d) {
  if (trained_part(c) != TrainedPart::adapters) return "";
  const AdapterSettings settings = must(adapter_settings(c));
  const auto* const lora = std::get_if<LoraSettings>(&settings);
  if (lora == nullptr) return str("adapter  ", describe(settings), "\n");
  const std::vector<LoraTarget> targets = must(lora_targets(d, *lora));
  std::set<std::string> kinds;
  std::set<std::int64_t> ranks;
  for (const LoraTarget& target : targets) {
    kinds.insert(target.module.substr(target.module.rfind('.') + 1));
    ranks.insert(target.lora.part.rank);
  }
  std::string more;
  if (has_dropout(c)) more += str(", with a dropout of ", lora->dropout);
  if (!lora->save.empty()) more += fmt::format("; trained whole: {}", fmt::join(lora->save, ", "));
  std::size_t n_tokens = 0;
  for (const TrainedTokens& tokens : lora->tokens) n_tokens += tokens.ids.size();
  if (n_tokens > 0) more += str("; with rows of ", plural(n_tokens, "token"));
  if (lora->bias != LoraSettings::Bias::none)
    more += str("; biases: ", lora->bias == LoraSettings::Bias::all ? "all" : "of these modules");
  return fmt::format("adapter  {}{}{} of rank {} on {}: {}{}\n", lora->rslora ? "rs" : "",
                     lora->dora ? "DoRA" : "LoRA", lora->pissa ? " from PiSSA" : "", fmt::join(ranks, ", "),
                     plural(targets.size(), "module"), fmt::join(kinds, ", "), more);
}

/// Elements of the matrices that are trained in subspaces, of their factors and of their bases.
struct SubspaceSizes {
  std::int64_t modules = 0, matrices = 0, factors = 0, bases = 0;
};
SubspaceSizes subspace_sizes(const TrainConfig& c, const DecoderConfig& d) {
  SubspaceSizes sizes;
  const std::map<std::string, std::int64_t> inner = inner_extents(d);
  for (const LoraGroup& group : must(subspace_groups(c, d))) {
    const std::int64_t of_a = group.ranks() * inner.at(group.weight), of_b = group.elems();
    const bool trains_a = group.trained == LoraTrained::a;
    sizes.modules += group.parts.n;
    sizes.matrices += group.rows() * inner.at(group.weight);
    sizes.factors += trains_a ? of_a : of_b;
    sizes.bases += trains_a ? of_b : of_a;
  }
  return sizes;
}

// Describes what is trained in subspaces, and the values that the optimizer has of it.
std::string subspace_text(const TrainConfig& c, const DecoderConfig& d) {
  if (trained_part(c) != TrainedPart::subspaces) return "";
  const SubspaceSizes sizes = subspace_sizes(c, d);
  return fmt::format(
      "galore   {} of rank {}: {} parameters are trained as {} in subspaces, whose bases have {} and change "
      "every {} ({})\n",
      plural(sizes.modules, "module"), c.optim.galore_rank, count_text(sizes.matrices),
      count_text(sizes.factors), count_text(sizes.bases), plural(c.optim.galore_gap, "step"),
      c.optim.galore_svd);
}

std::string subspace_json(const TrainConfig& c, const DecoderConfig& d) {
  if (trained_part(c) != TrainedPart::subspaces) return "";
  const SubspaceSizes sizes = subspace_sizes(c, d);
  return fmt::format(
      ",\n  \"galore\": {{\"modules\": {}, \"matrix_elems\": {}, \"factor_elems\": {}, \"basis_elems\": {}}}",
      sizes.modules, sizes.matrices, sizes.factors, sizes.bases);
}

// How many of the base's parameters are quantized, and to how many bytes.
std::string base_text(const TrainConfig& c, const RunPlan& plan) {
  std::int64_t params = 0, bytes = 0, matrices = 0;
  for (const kernels::QuantizedMatrix& matrix : plan.quantized_of_tensor) {
    if (matrix.format == kernels::WeightFormat::full) continue;
    ++matrices;
    params += matrix.n_elems();
    bytes += matrix.bytes();
  }
  if (matrices == 0) return "";
  return fmt::format("base     {} of {} matrices, {} parameters in {} ({:.4f} bytes each); the rest in {}\n",
                     c.train.base, matrices, count_text(params),
                     format_bytes(static_cast<std::uint64_t>(bytes)),
                     static_cast<double>(bytes) / static_cast<double>(params), c.train.dtype);
}

// How many experts there are, and how much of them a token and a step use: with few rows an expert, a step is
// bound by the bytes of the model and not by what it computes.
std::string experts_text(const TrainConfig& c, const DecoderConfig& decoder) {
  const DecoderConfig d = with_derived_sizes(decoder);
  const ExpertsConfig& e = d.experts;
  if (e.n == 0) return "";
  const auto layers = std::count(e.layers.begin(), e.layers.end(), true);
  const std::int64_t idle = layers * (e.n - e.per_token) * 3 * e.ffn * d.hidden, all = count_parameters(d);
  return fmt::format(
      "experts  {} in each of {}, {} for a token, for which {} of the parameters compute; {:.1f} rows an "
      "expert and step\n",
      e.n, plural(layers, "layer"), e.per_token, count_text(all - idle),
      static_cast<double>(tokens_per_step(c)) * static_cast<double>(e.per_token) / static_cast<double>(e.n));
}

// Describes what is trained, and how a step computes.
std::string model_lines(const TrainConfig& c, const PlannedJob& job) {
  const RunPlan& plan = *job.plan;
  const DecoderConfig d = decoder_config(c);
  std::string text = fmt::format(
      "model    {}: {}, hidden {}, heads {}, vocabulary {}, sequence {}: {} parameters\n", d.family,
      plural(d.layers, "layer"), d.hidden, d.heads, d.vocab, d.seq, count_text(count_parameters(d)));
  text += experts_text(c, d);
  if (const std::int64_t frozen = plan.n_params(false);
      frozen > 0 && trained_part(c) != TrainedPart::subspaces)
    text += fmt::format("frozen   {} parameters; {} are trained\n", count_text(frozen),
                        count_text(plan.n_params(true)));
  text += adapter_text(c, d) + subspace_text(c, d) + base_text(c, plan);
  return text +
         fmt::format("step     {} ({} of {}) in {}, {} in {}, recompute {}{}\n",
                     plural(static_cast<std::int64_t>(tokens_per_step(c)), "token"),
                     plural(c.train.grad_accum, "micro-batch"), plural(c.train.micro_batch, "sequence"),
                     c.train.fp8 ? c.train.dtype + " and FP8" : c.train.dtype, c.optim.name, c.offload.states,
                     to_string(job.recompute), attention_text(plan.of(ProgramRole::train)));
}

std::string machine_lines(const TrainConfig& c, const PlannedJob& job, const std::string& nvme_note) {
  std::string text;
  if (job.other_machine.empty()) {
    const auto device = compute_device(c.memory.backend);
    text = fmt::format("machine  {}, {}; nvme: {}\n",
                       device.has_value() && device->kind == DeviceKind::cuda ? device->name : "host backend",
                       simd::to_string(simd::active_isa()), nvme_note);
    text += str("cores    ", c.cpu.share.why, "\n");
  } else {
    text = str("machine  ", job.other_machine, " (profile)\n");
  }
  if (!job.bf16_gemm.empty()) text += str("gemm     ", job.bf16_gemm, "\n");
  return text;
}

// How the ranks share the run, and what each of them sends.
std::string rank_line(const TrainConfig& c, const RunPlan& plan) {
  const DataParallel& ranks = plan.options.ranks;
  const ModelParallel& model = plan.options.model;
  if (ranks.ranks * model.ranks() == 1) return {};
  const RankTraffic traffic = rank_traffic(plan, plan.of(ProgramRole::train).uses);
  const std::string by =
      (ranks.zero == 0 ? std::string("DDP") : str("ZeRO-", ranks.zero)) +
      (model.ranks() > 1 ? str(" over ", ranks.ranks, " x (", to_string(model), ")") : std::string());
  const std::string copies =
      ranks.zero > 0 && ranks.replicas() > 1 ? str(" in shards of ", plural(ranks.shards(), "rank")) : "";
  return str("ranks    ", ranks.ranks * model.ranks(),
             c.parallel.transport == "auto" ? "" : " (" + c.parallel.transport + ")", ", ", by, copies,
             "; each sends ", format_bytes(traffic.all()), " per step: gradients ",
             format_bytes(traffic.gradients), ", parameters ", format_bytes(traffic.parameters), ", control ",
             format_bytes(traffic.control),
             model.ranks() > 1 ? ", within the model " + format_bytes(traffic.shared) : "", "\n");
}

// How the plan was chosen, and what in it may surprise.
std::string plan_lines(const TrainConfig& c, const PlannedJob& job) {
  const RunPlan& plan = *job.plan;
  std::string text;
  if (!job.split.empty())
    text += str("plan     micro-batches were split (train.allow_micro_batch_split) because ", job.split,
                " does not fit; the order of sums changes, so results differ in bits\n");
  for (const std::string& note : plan.notes) text += "plan     " + note + "\n";
  if (!job.chosen_by.empty()) text += str("plan     ", job.chosen_by, "\n");
  if ((c.offload.activations == "pinned" || c.offload.activations == "nvme") &&
      plan.of(ProgramRole::train).offload.n == 0)
    text += "plan     activations: none is unused for long enough to be offloaded\n";
  return text;
}

std::string tier_table(const RunPlan& plan) {
  std::string text =
      fmt::format("\n  {:<7} {:>12} {:>12} {:>9}   {}\n", "tier", "budget", "planned peak", "homes", "what");
  const std::size_t offloaded = plan.of(ProgramRole::train).offload.host_bytes;
  const std::array<std::string, kTiers> what = {
      fmt::format("activations {}", format_bytes(plan.trace.device_fixed_bytes)),
      fmt::format("inputs and norm partials {}", format_bytes(plan.trace.pinned_fixed_bytes - offloaded)) +
          (offloaded > 0 ? ", activations " + format_bytes(offloaded) : ""),
      std::string("including spare extents for write-behind") +
          (plan.trace.nvme_fixed_bytes > 0 ? "; activations " + format_bytes(plan.trace.nvme_fixed_bytes)
                                           : std::string())};
  for (std::size_t t = 0; t < kTiers; ++t) {
    const TierHomes homes = homes_in(plan, static_cast<Tier>(t));
    text += fmt::format("  {:<7} {:>12} {:>12} {:>9}   {}; {}\n", to_string(static_cast<Tier>(t)),
                        budget_text(plan.options.budgets[t]), format_bytes(plan.planned_peak[t]),
                        format_bytes(homes.bytes), plural(homes.payloads, "home payload"), what[t]);
  }
  return text + "\n";
}

}  // namespace

std::string paths_text(const std::vector<NvmePath>& paths) {
  if (paths.size() < 2) return "";
  std::uint64_t all = 0;
  for (const NvmePath& path : paths) all += path.bytes;
  std::string text;
  for (const NvmePath& path : paths)
    text += fmt::format(", {:.0f} % in {}", 100 * static_cast<double>(path.bytes) / static_cast<double>(all),
                        path.dir);
  return text;
}

std::string start_table(const TrainConfig& c, const PlannedJob& job, const std::string& nvme_note) {
  return model_lines(c, job) + machine_lines(c, job, nvme_note) + rank_line(c, *job.plan) +
         split_lines(c, *job.plan) + plan_lines(c, job) +
         write_budget_text(c.io.write_budget_bytes, *job.plan) + tier_table(*job.plan);
}

double tokens_per_step(const TrainConfig& c) noexcept {
  return static_cast<double>(c.train.micro_batch) * c.train.grad_accum * c.model.seq;
}

std::string plan_json(const TrainConfig& c, const RunPlan& plan, Recompute recompute,
                      const std::vector<JsonField>& more) {
  const DecoderConfig d = decoder_config(c);
  const StateTotals totals = sum_states(plan);
  std::string text = fmt::format(
      "{{\n  \"dtype\": \"{}\",\n  \"parameters\": {},\n  \"trainable_parameters\": {},\n  "
      "\"frozen_parameters\": {},\n  "
      "\"chunks\": {},\n  \"chunk_elems\": {},\n  \"allocated_elems\": {},\n  "
      "\"state_bytes\": {},\n  \"recompute\": \"{}\",\n  "
      "\"prefetch\": {},\n"
      "  \"activation_bytes\": {},\n  \"offloaded_activations\": {{\"values\": {}, \"moved_bytes\": {}, "
      "\"pinned_bytes\": {}, \"nvme_bytes\": {}}},\n  \"instructions\": {},\n  \"tiers\": {{\n",
      c.train.dtype, count_parameters(d), plan.n_params(true), plan.n_params(false), plan.layout.n_chunks(),
      plan.layout.chunk_elems(), totals.elems, totals.bytes, to_string(recompute), *plan.options.prefetch,
      plan.trace.device_fixed_bytes, plan.of(ProgramRole::train).offload.n,
      plan.of(ProgramRole::train).offload.bytes, plan.of(ProgramRole::train).offload.host_bytes,
      plan.trace.nvme_fixed_bytes, plan.of(ProgramRole::train).code.size());
  for (std::size_t t = 0; t < kTiers; ++t) {
    const TierHomes homes = homes_in(plan, static_cast<Tier>(t));
    text += fmt::format(
        "    \"{}\": {{\"budget_bytes\": {}, \"planned_bytes\": {}, \"home_bytes\": {}, \"home_payloads\": "
        "{}}}{}\n",
        to_string(static_cast<Tier>(t)),
        plan.options.budgets[t] == kUnlimited ? std::string("null") : str(plan.options.budgets[t]),
        plan.planned_peak[t], homes.bytes, homes.payloads, t + 1 < kTiers ? "," : "");
  }
  text += "  },\n  \"homes\": " + homes_json(plan) + ",\n  \"chunk_homes\": " + chunk_homes_json(plan) +
          ",\n  \"chunk_bytes\": " + chunk_bytes_json(plan) + ",\n  \"programs\": " + programs_json(plan) +
          subspace_json(c, d);
  const ModelParallel& model = plan.options.model;
  if (const DataParallel& ranks = plan.options.ranks; ranks.ranks * model.ranks() > 1) {
    const RankTraffic traffic = rank_traffic(plan, plan.of(ProgramRole::train).uses);
    text += fmt::format(
        ",\n  \"ranks\": {{\"ranks\": {}, \"zero\": {}, \"shards\": {}, \"model\": \"{}\", "
        "\"sent_bytes_per_step\": {{\"gradients\": {}, \"parameters\": {}, \"control\": {}, \"shared\": "
        "{}}}}}",
        ranks.ranks * model.ranks(), ranks.zero, ranks.shards(), to_string(model), traffic.gradients,
        traffic.parameters, traffic.control, traffic.shared);
  }
  for (const JsonField& field : more) text += str(",\n  \"", field.name, "\": ", field.value);
  return text + "\n}\n";
}

}  // namespace strata
