#include "plan_choice.h"

#include <algorithm>

#include <strata/config/load_config.h>
#include <strata/config/train_config.h>
#include <strata/graph/op_list.h>
#include <strata/plan/record_programs.h>
#include <strata/plan/activation_choices.h>

namespace strata {
namespace {

// Breadth-first programs with more instructions are planned only if the others wait much, since they take
// long to plan; beyond the second number they are not planned at all.
constexpr std::size_t kSearchedInstructions = 16384, kMostInstructions = 262144;

// The search request: which options are `auto` and may be varied because they affect only the time of a step.
PlanSearchRequest plan_choices(const ConfigTree& tree, std::span<const ProgramSet> programs,
                               std::span<const ActivationChoice> activations) {
  PlanSearchRequest candidates;
  candidates.programs = programs;
  candidates.compared =
      static_cast<std::size_t>(std::find_if(activations.begin(), activations.end(),
                                            [](const ActivationChoice& a) { return a.offload_share > 0; }) -
                               activations.begin());
  const auto is_open = [&](const char* key) { return tree.entry(key).automatic; };
  candidates.open = {.step_mode = is_open("offload.step_mode") && is_open("offload.undo_log"),
                     .chunk = is_open("offload.chunk"),
                     .gradients = is_open("offload.gradients"),
                     .prefetch = is_open("offload.prefetch"),
                     .device_first = is_open("offload.policy")};
  return candidates;
}

Status record(const TrainConfig& c, std::span<const ActivationChoice> choices, CandidatePrograms& candidates,
              std::size_t most_instructions = kSearchedInstructions) {
  for (const ActivationChoice& choice : choices) {
    STRATA_TRY_ASSIGN(ProgramSet programs, record_programs(c, choice));
    if (choice.breadth_first && c.offload.micro_batch_order == "auto" &&
        programs[ProgramRole::train].code.size() > most_instructions)
      continue;
    const Op offload_op = choice.to_nvme ? Op::store_begin : Op::offload_begin;
    if (choice.offload_share > 0 && c.offload.activations == "auto" &&
        !has_op(programs[ProgramRole::train], offload_op))
      continue;  // nothing can be offloaded there, so the program equals one that is already a candidate
    programs.plan_memory();
    candidates.activations.push_back(choice);
    candidates.programs.push_back(std::move(programs));
  }
  return {};
}

// The fastest candidate by forecast.
Result<FoundPlan> choose(const LoadedConfig& loaded, const CandidatePrograms& candidates,
                         const SessionOptions& asked, const MachineProfile& profile, bool explain_refusal) {
  PlanSearchRequest choices = plan_choices(loaded.tree, candidates.programs, candidates.activations);
  choices.explains = explain_refusal;
  return search_plan(choices, asked, profile);
}

}  // namespace

namespace {

// Records one after the other until one fits, since most runs need the first.
Result<FoundPlan> first_that_fits(const LoadedConfig& loaded, const std::vector<ActivationChoice>& all,
                                  CandidatePrograms& candidates, const SessionOptions& asked,
                                  bool explain_refusal) {
  const auto found = [&](std::size_t programs, std::unique_ptr<const RunPlan> plan) {
    FoundPlan first;
    first.programs = programs;
    first.plan = std::move(plan);
    first.options = asked;
    return first;
  };
  for (const ActivationChoice& choice : all) {
    const std::size_t before = candidates.programs.size();
    STRATA_TRY(record(loaded.config, {&choice, 1}, candidates));
    if (candidates.programs.size() == before) continue;
    auto first = Engine::plan_first_fit(std::span(candidates.programs).subspan(before), asked, false);
    if (first.has_value()) return found(before, std::move(first->plan));
    if (first.status().code() != Code::does_not_fit || (!explain_refusal && &choice == &all.back()))
      return first.status();
  }
  // All are known now, and none fits.
  STRATA_TRY_ASSIGN(Engine::Choice none, Engine::plan_first_fit(candidates.programs, asked, explain_refusal));
  return found(none.index, std::move(none.plan));
}

}  // namespace

namespace {

/// The plan that was found, and the programs that it is an index into.
struct Chosen {
  FoundPlan found;
  CandidatePrograms candidates;

  const ActivationChoice& activations() const { return candidates.activations[found.programs]; }
  bool waits_much() const {
    constexpr double kMuchOfStep = 0.25;
    double waits = 0;
    for (const std::int64_t ns : found.forecast.times.stalled_ns) waits += static_cast<double>(ns) * 1e-9;
    return waits >= kMuchOfStep * found.forecast.step_s;
  }
  // Whether activations leave little room on the device for parameters.
  bool stores_much() const {
    constexpr double kMuchOfDevice = 0.25;
    const auto device = static_cast<double>(found.options.budgets[static_cast<std::size_t>(Tier::device)]);
    return static_cast<double>(found.plan->trace.device_fixed_bytes) >= kMuchOfDevice * device;
  }
};

// Programs that take long to record and to plan are tried only where the plan waits much: breadth-first order
// of many instructions, and activations that are carried to pinned RAM and back.
class LongPrograms {
 public:
  LongPrograms(const LoadedConfig& loaded, const SessionOptions& asked, const MachineProfile& profile,
               std::span<const ActivationChoice> all)
      : loaded_(loaded), asked_(asked), profile_(profile), all_(all) {}

  Status improve(Chosen& chosen) const {
    const bool may_be_breadth_first = std::any_of(all_.begin(), all_.end(), [](const ActivationChoice& a) {
      return a.breadth_first && a.offload_share == 0;
    });
    ActivationChoice choice = chosen.activations();
    if (chosen.waits_much() && may_be_breadth_first && !choice.breadth_first) {
      choice.breadth_first = true;
      STRATA_TRY(try_too(choice, chosen));
    }
    if (!chosen.waits_much() || !chosen.stores_much() || loaded_.config.offload.activations != "auto")
      return {};
    choice = chosen.activations();
    choice.offload_share = 1;
    return try_too(choice, chosen);
  }

 private:
  Status try_too(const ActivationChoice& choice, Chosen& chosen) const {
    CandidatePrograms other;
    STRATA_TRY(record(loaded_.config, {&choice, 1}, other, kMostInstructions));
    if (other.programs.empty()) return {};
    auto found = choose(loaded_, other, asked_, profile_, false);
    if (!found.has_value() && found.status().code() != Code::does_not_fit) return found.status();
    if (!found.has_value() || found->forecast.step_s >= chosen.found.forecast.step_s) return {};
    found->candidates += chosen.found.candidates;
    chosen = {*std::move(found), std::move(other)};
    return {};
  }

  const LoadedConfig& loaded_;
  const SessionOptions& asked_;
  const MachineProfile& profile_;
  const std::span<const ActivationChoice> all_;
};

}  // namespace

Result<FoundPlan> choose_plan(const LoadedConfig& loaded, CandidatePrograms& candidates,
                              const SessionOptions& asked, const MachineProfile* profile,
                              bool explain_refusal) {
  const std::vector<ActivationChoice> all = activation_choices(loaded.config, profile != nullptr);
  if (profile == nullptr) return first_that_fits(loaded, all, candidates, asked, explain_refusal);
  const auto first_offloading =
      std::find_if(all.begin(), all.end(), [](const auto& a) { return a.offload_share > 0; });
  const std::span<const ActivationChoice> on_device(all.begin(), first_offloading);
  STRATA_TRY(record(loaded.config, on_device, candidates));
  if (!on_device.empty()) {
    const bool last = first_offloading == all.end();
    auto found = choose(loaded, candidates, asked, *profile, explain_refusal && last);
    if (found.has_value()) {
      Chosen chosen{*std::move(found), std::move(candidates)};
      STRATA_TRY(LongPrograms(loaded, asked, *profile, all).improve(chosen));
      candidates = std::move(chosen.candidates);
      return std::move(chosen.found);
    }
    if (last || found.status().code() != Code::does_not_fit) return found;
  }
  STRATA_TRY(record(loaded.config, {first_offloading, all.end()}, candidates));
  return choose(loaded, candidates, asked, *profile, explain_refusal);
}

}  // namespace strata
