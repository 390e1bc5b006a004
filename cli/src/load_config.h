#pragma once

#include <strata/runtime/config.h>

#include "args.h"
#include "train_config.h"

namespace strata::cli {

/// key=value or a file? A file whose name has a '=' is written as ./name.
bool is_assignment(const std::string& item);

struct LoadedConfig {
  ConfigTree tree;
  TrainConfig config;
};

/// Keys that say how a step is run and no bit of what it computes: where they are auto, a plan decides them
/// for its budgets.
inline constexpr std::string_view kPlannedKeys[] = {"train.recompute",          "offload.chunk",
                                                    "offload.prefetch",         "offload.step_mode",
                                                    "offload.undo_log",         "offload.activations",
                                                    "offload.activation_share", "offload.policy",
                                                    "offload.gradients",        "offload.micro_batch_order"};

/// The configuration that a verb's FILE, key=value, --preset and environment give, checked as a whole, with
/// the autos resolved that need nothing but this machine. Errors: `invalid` with a line a problem, or what
/// the file met. `unless_set`: values instead of the defaults. Where the file is a run's and other budgets
/// are given beside it, what that run decided by itself (offload.auto_keys) is open again.
Result<LoadedConfig> load_config(const Args& args, ConfigLayer unless_set = {});

/// The same command line with the keys of `overrides` (key=value) replaced: a key may stand once on it.
Args with_overrides(const Args& args, const std::vector<std::string>& overrides);
/// The same command line with those of `assignments` (key=value) whose keys it does not give.
Args with_defaults(const Args& args, const std::vector<std::string>& assignments);
/// Overrides for a run that offloads nothing.
std::vector<std::string> device_only_overrides();

/// Prints an error: one line, or a count and a line a problem. Returns its exit code.
int print_error(const Args& args, std::string_view verb, const Status& status);

void print(std::FILE* to, std::string_view text);

}  // namespace strata::cli
