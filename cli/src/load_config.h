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

/// The configuration that a verb's FILE, key=value, --preset and environment give, checked as a whole, with
/// the autos resolved that need nothing but this machine. Errors: `invalid` with a line a problem, or what
/// the file met.
Result<LoadedConfig> load_config(const Args& args);

/// The same command line with the keys of `overrides` (key=value) replaced: a key may stand once on it.
Args overridden(const Args& args, const std::vector<std::string>& overrides);
/// Overrides for a run that offloads nothing.
std::vector<std::string> all_on_device();

/// Prints an error: one line, or a count and a line a problem. Returns its exit code.
int print_error(const Args& args, std::string_view verb, const Status& status);

void print(std::FILE* to, std::string_view text);

}  // namespace strata::cli
