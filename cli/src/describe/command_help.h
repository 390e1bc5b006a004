#pragma once

#include <string>
#include <vector>

namespace strata::cli {

/// An option or argument of a command, as its help describes it.
struct OptionHelp {
  std::vector<std::string> names = {};    ///< "--preset"; empty for an argument
  std::string value = {};                 ///< how its value is called, "FILE"; empty: it takes none
  std::vector<std::string> choices = {};  ///< the values it accepts, where those are few words
  std::string text = {};
  std::string default_text = {};  ///< the value without the option; empty if that means that none is set
  bool is_argument() const noexcept { return names.empty(); }
};
/// strata itself, a verb, or an action of one.
struct CommandHelp {
  std::string name, text;
  std::vector<OptionHelp> options = {};
  std::vector<CommandHelp> commands = {};
  /// Null if there is none of that name.
  const CommandHelp* find(const std::string& command) const noexcept;
  /// Whether it accepts section.key=value.
  bool takes_keys() const noexcept;
};
/// The whole command, from the tables that parse it.
CommandHelp command_help();

}  // namespace strata::cli
