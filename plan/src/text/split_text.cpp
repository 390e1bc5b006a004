#include "text/split_text.h"

#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/parallel/device_mesh.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/plan/split/model_pipeline.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>
#include <strata/config/pipeline_schedule.h>

namespace strata {
namespace {

// "layers.*.qkv.weight": of all layers.
std::string without_numbers(const std::string& name) {
  std::string pattern;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    const bool begins = is_digit && i > 0 && name[i - 1] == '.';
    if (begins)
      pattern += '*';
    else if (!is_digit || pattern.empty() || pattern.back() != '*')
      pattern += name[i];
  }
  return pattern;
}

std::string tensors_text(const TensorTable& tensors) {
  std::vector<std::string> shared;
  std::map<std::string, bool> known;
  int whole = 0, elsewhere = 0;
  for (std::size_t t = 0; t < tensors.specs.size(); ++t) {
    if (tensors.specs[t].is_elsewhere) {
      ++elsewhere;
      continue;
    }
    if (tensors.whole_shape(t) == tensors.shapes[t]) {
      ++whole;
      continue;
    }
    std::string text = str(without_numbers(tensors.specs[t].name), " ", to_string(tensors.whole_shape(t)),
                           " -> ", to_string(tensors.shapes[t]));
    if (known.emplace(text, true).second) shared.push_back(std::move(text));
  }
  std::string all;
  for (const std::string& text : shared) all += (all.empty() ? "" : "; ") + text;
  return str(all.empty() ? "no tensor is shared" : all, "; ", plural(whole, "tensor"), " of a rank whole",
             elsewhere > 0 ? str(", ", elsewhere, " of other stages") : "");
}

struct Exchanged {
  int n = 0;
  std::uint64_t bytes = 0;
};

// The bytes that the program sends, by axis and kind.
std::string traffic_text(const LoweredProgram& program) {
  std::map<std::pair<std::string, std::string>, Exchanged> by_kind;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const LoweredInstr& instr = program.code[i];
    const UseTrace::Position& position = program.uses.positions[i];
    const bool is_sent = instr.op == Op::send_begin;
    if (!is_sent && (!is_collective(instr.op) || instr.op == Op::shift_end)) continue;
    const auto axis = static_cast<MeshAxis>(is_sent ? instr.attrs.as<MessageAttrs>().axis
                                                    : instr.attrs.as<CollectiveAttrs>().axis);
    const std::string name = is_sent                       ? "message"
                             : instr.op == Op::shift_begin ? "shift"
                                                           : std::string(op_name(instr.op));
    Exchanged& sum = by_kind[{std::string(to_string(axis)), name}];
    ++sum.n;
    sum.bytes += position.sent_bytes + position.summed_bytes;
  }
  std::string text;
  for (const auto& [kind, sum] : by_kind)
    text += str(text.empty() ? "" : ", ", sum.n, " x ", kind.second, " along ", kind.first, " (",
                format_bytes(sum.bytes), ")");
  return text.empty() ? "nothing" : text;
}

// How many layers a rank has in its stages.
double layers_of_rank(const TrainConfig& c, std::int32_t rank) {
  if (!c.parallel.stage_layers) return 0;
  double layers = 0;
  for (auto stage = static_cast<std::size_t>(rank); stage < c.parallel.stage_layers->size();
       stage += static_cast<std::size_t>(c.parallel.pp))
    layers += (*c.parallel.stage_layers)[stage];
  return layers;
}

std::string pipeline_text(const TrainConfig& c) {
  const auto schedule = pipeline_schedule(c);
  if (c.parallel.pp == 1 || !schedule.has_value()) return {};
  const std::int32_t rank = model_parallel(c).place(MeshAxis::pp);
  const PipelineTiming timing = time_pipeline(*schedule);
  const double idle = static_cast<double>(timing.idle[static_cast<std::size_t>(rank)]);
  return fmt::format(
      "pipeline stage {}{} of {} with {} of {} layers, schedule {}: {}, activations of at most {} at a time; "
      "{:.1f} % of the step "
      "idle if stages take equally long\n",
      rank, schedule->virtual_stages > 1 ? str(" and every ", schedule->ranks(), "th after it") : "",
      schedule->stages(), layers_of_rank(c, rank), decoder_config(c).layers, c.parallel.schedule,
      plural(schedule->micro_batches, "micro-batch"), max_live_micro_batches(*schedule, rank),
      100 * idle / static_cast<double>(timing.end));
}

}  // namespace

std::string split_lines(const TrainConfig& c, const RunPlan& plan) {
  if (plan.options.model.ranks() == 1) return {};
  return str("split    ", tensors_text(plan.tensors), "\nsplit    a ",
             c.parallel.pp > 1 ? "step" : "micro-batch", " has ", traffic_text(plan.of(ProgramRole::train)),
             "\n", pipeline_text(c));
}

}  // namespace strata
