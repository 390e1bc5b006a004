#include "loop/start/command_trust.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include <strata/config/load_config.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/text/rewards/rewards.h>
#include <strata/train/run_folder.h>
#include <strata/config/run_layout.h>

namespace strata {
namespace {

/// A command, and the key that names it.
struct RunCommand {
  const char* key;
  std::string text;
};

std::vector<RunCommand> commands_of(const TrainConfig& config) {
  std::vector<RunCommand> commands;
  if (!config.log.command.empty()) commands.push_back({"log.command", config.log.command});
  for (const std::string& reward : config.align.reward)
    if (const auto spec = parse_reward(reward);
        objective_of(config).data == RunData::prompts && spec.has_value() && spec->kind == "command")
      commands.push_back({"align.reward", spec->argument});
  return commands;
}

Status check_owner(const std::string& path) {
  struct ::stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    return Status::error(Code::io_error, str(path, ": ", std::strerror(errno)));
  if (facts.st_uid == ::geteuid()) return {};
  return Status::error(Code::invalid, str(path, " belongs to user ", facts.st_uid,
                                          ", and this process to user ", ::geteuid()));
}

}  // namespace

Status check_commands(const LoadedConfig& loaded, const std::string& run) {
  for (const RunCommand& command : commands_of(loaded.config)) {
    if (!loaded.tree.entry(command.key).origin.starts_with("file ")) continue;
    Status owned = check_owner(run);
    if (owned.is_ok()) owned = check_owner(str(run, "/", kResolvedConfig));
    if (owned.is_ok()) continue;
    return Status::error(owned.code(), str(command.key, " would start the command ",
                                           json_string(command.text), ", but ", owned.message(), ": give ",
                                           command.key, "=... again to start it, or leave it empty"));
  }
  return {};
}

void name_commands(const TrainConfig& config, Observer& observer) {
  for (const RunCommand& command : commands_of(config))
    observer.on_message(str("command  ", command.key, " starts ", json_string(command.text)));
}

}  // namespace strata
