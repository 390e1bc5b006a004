#include "describe/command_reference.h"

#include <fmt/format.h>

#include <strata/runtime/str.h>

#include "exit_code.h"

namespace strata::cli {
namespace {

// A bar would end the cell of a table, also inside of code.
std::string without_bars(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at))
    text.replace(at, 1, " or ");
  return text;
}

std::string code_text(const std::string& text) { return str("`", without_bars(text), "`"); }

std::string option_names(const OptionHelp& option) {
  if (option.is_argument()) return code_text(option.value);
  std::string names;
  for (const std::string& name : option.names) {
    const bool last = &name == &option.names.back();
    names += str(names.empty() ? "" : ", ",
                 code_text(last && !option.value.empty() ? str(name, " ", option.value) : name));
  }
  return names;
}

std::string option_meaning(const OptionHelp& option) {
  std::string text = without_bars(option.text), words;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at))
    text.replace(at, 1, "&lt;");
  for (const std::string& choice : option.choices)
    if (text.find(choice) == std::string::npos) words += str(words.empty() ? "" : ", ", code_text(choice));
  if (!words.empty()) text += str(": ", words);
  const bool says_default = text.find("default") != std::string::npos;
  return option.default_text.empty() || says_default
             ? text
             : str(text, " (default: ", code_text(option.default_text), ")");
}

/// Describes a verb without actions, or an action: what it is called with, and its options.
std::string command_use(const std::string& name, const CommandHelp& command) {
  std::string arguments, rows;
  bool has_options = false;
  for (const OptionHelp& option : command.options) {
    if (!option.is_argument() && option.names.back() == "--help") continue;
    if (option.is_argument())
      arguments += str(" ", option.value);
    else
      has_options = true;
    rows += str("| ", option_names(option), " | ", option_meaning(option), " |\n");
  }
  std::string text = str("```text\n", name, has_options ? " [OPTIONS]" : "", arguments, "\n```\n");
  if (!rows.empty()) text += str("\n| option | meaning |\n| --- | --- |\n", rows);
  if (command.takes_keys()) text += "\nThe keys are in [configuration.md](configuration.md).\n";
  return text;
}

}  // namespace

std::string command_reference(const CommandHelp& strata) {
  std::string text =
      "# Commands\n\nWritten by `strata man --markdown`; `strata VERB --help` and `strata man VERB` say the "
      "same of "
      "one.\n\n| verb | what it does |\n| --- | --- |\n";
  for (const CommandHelp& verb : strata.commands)
    text += fmt::format("| [`strata {0}`](#strata-{0}) | {1} |\n", verb.name, verb.text);
  for (const CommandHelp& verb : strata.commands) {
    const std::string name = "strata " + verb.name;
    text += str("\n## ", name, "\n\n", verb.text, ".\n");
    if (verb.commands.empty()) text += str("\n", command_use(name, verb));
    for (const CommandHelp& action : verb.commands)
      text += str("\n### ", name, " ", action.name, "\n\n", action.text, ".\n\n",
                  command_use(str(name, " ", action.name), action));
  }
  text += "\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n";
  for (const ExitMeaning& meaning : kExitMeanings)
    text += fmt::format("| {} | {} |\n", meaning.code, meaning.text);
  return text;
}

}  // namespace strata::cli
