#pragma once

#include <string>

#include <strata/engine/plan_search.h>
#include <strata/runtime/config/config.h>

namespace strata {

struct LoadedConfig;

/// Decides the `auto` keys that depend on the machine and not on the model, and applies the choice of the
/// instruction set. `profile`: that of this machine, if there is one, or with `is_other` that of the machine
/// that is planned for. Returns the machine's memory. Errors: `unsupported` for a key that the machine has no
/// hardware for.
Result<TierBytes> decide_machine(LoadedConfig& loaded, const MachineProfile* profile = nullptr,
                                 bool is_other = false);

/// Decides train.frozen_masters. Errors: those of reading the folder of model.from.
Status decide_frozen_masters(LoadedConfig& loaded);

/// Decides align.old_log_probs, once memory.backend, train.dtype and the instruction set are known. A plan
/// for another machine takes its host for one like this.
void decide_old_log_probs(LoadedConfig& loaded);

/// Lists the planned keys that are `auto` in offload.auto_keys, if the run does not have the list yet.
void record_auto_keys(ConfigTree& tree);

/// Writes the options that the search changed into the configuration, with the reason `why`, and returns a
/// list of them.
std::string resolve_changes(LoadedConfig& loaded, const SessionOptions& asked, const FoundPlan& found,
                            const std::string& why);

/// Resolves offload.prefetch to the depth that the plan chose.
void resolve_prefetch(LoadedConfig& loaded, const RunPlan& plan);

/// Resolves the other offload keys that are still `auto` to what the plan has.
void resolve_plan(LoadedConfig& loaded, const RunPlan& plan);

}  // namespace strata
