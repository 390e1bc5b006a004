#pragma once

#include <string>
#include <string_view>

#include <strata/runtime/config/config.h>
#include <strata/runtime/io/io.h>

namespace strata {

/// The configuration to store in a run folder, as TOML. The folder may be moved and resumed from anywhere, so
/// paths inside it become relative to it and all others absolute. Data files found among the installed data
/// stay as written.
std::string run_config_toml(Io& io, const ConfigTree& tree, const std::string& run);

/// The run folder if `file` is the resolved configuration of a run; empty for any other file.
std::string run_folder_of_config(const std::string& file);

/// The inverse of run_config_toml(): relative paths from the run's configuration that exist below `run`
/// become paths below `run`.
void resolve_run_paths(Io& io, ConfigTree& tree, const std::string& run);
/// The folder of the run whose resolved configuration a value comes from, by its ConfigEntry::origin, such as
/// "file runs/a/config.resolved.toml:12"; empty if it comes from elsewhere.
std::string run_of_origin(std::string_view origin);

}  // namespace strata
