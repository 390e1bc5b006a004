// Options that several verbs have.
#pragma once

#include <string>

#include "args.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of another library
class App;
}

namespace strata::cli {

/// The names of the presets, for help.
std::string preset_names();

/// --task
void add_task(CLI::App& app, Args& args);

/// FILE, key=value, --preset and --task, which every verb with a configuration accepts.
void add_run_options(CLI::App& app, Args& args);

/// Adds the run options and --json.
void add_plan_options(CLI::App& app, Args& args);

/// --nvme-dir
void add_nvme_dirs(CLI::App& app, Args& args);

/// --adapter: one adapter.
void add_adapter(CLI::App& app, Args& args);
/// --checkpoint STEP|best; `doc` begins its text.
void add_checkpoint(CLI::App& app, Args& args, const std::string& doc);

/// --adapter and --default-adapter: adapters that prompts or lines choose by their names.
void add_named_adapters(CLI::App& app, Args& args);

/// --enable-thinking and --chat-template-kwargs.
void add_chat_arguments(CLI::App& app, Args& args);

/// --tokens, --temperature, --top-k, --top-p, --min-p, the penalties and --seed.
void add_sampling(CLI::App& app, Args& args);

}  // namespace strata::cli
