#pragma once

#include <string>
#include <vector>

#include <strata/runtime/config/config.h>
#include <strata/config/config_request.h>
#include <strata/config/train_config.h>

namespace strata {

/// A configuration, and where each of its values comes from.
struct LoadedConfig {
  ConfigTree tree;
  TrainConfig config;
};

/// Loads and checks the configuration of a request and resolves the `auto` keys that depend only on this
/// machine. `unless_set`: values that replace defaults. If the file is a run's resolved configuration and the
/// request changes budgets or ranks, the keys that the run had decided itself (offload.auto_keys) become
/// `auto` again. Errors: `invalid` with one line per problem; those of reading the file.
Result<LoadedConfig> load_config(const ConfigRequest& request, ConfigLayer unless_set = {});

/// Overrides for a run that offloads nothing.
std::vector<std::string> device_only_overrides();

}  // namespace strata
