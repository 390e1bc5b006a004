#pragma once

#include <string>

#include <strata/runtime/config.h>
#include <strata/runtime/io.h>

namespace strata::cli {

/// The configuration for the folder of a run, which may be moved and resumed from anywhere: paths in the run
/// are relative to it, all others absolute. Data that was found among the installed files stays as written.
std::string run_config_toml(Io& io, const ConfigTree& tree, const std::string& run);

/// The folder of the run whose resolved configuration `file` is; empty for any other file.
std::string run_folder_of_config(const std::string& file);

/// The other way round: what the run's own configuration names, where it is in the run.
void resolve_run_paths(Io& io, ConfigTree& tree, const std::string& run);

}  // namespace strata::cli
