#include "describe/command_help.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include <strata/config/train_schema.h>
#include <strata/offload/machine_profile.h>
#include <strata/config/task.h>

#include "verb_table.h"

namespace strata::cli {
namespace {

// "TEXT:{host,cuda}" is what CLI11 says of an option with a check for these.
std::vector<std::string> words_in_braces(const std::string& type) {
  std::vector<std::string> words;
  const std::size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return words;
  std::string rest = type.substr(open + 1, close - open - 1);
  for (std::size_t comma = 0; comma != std::string::npos;
       rest = comma == std::string::npos ? rest : rest.substr(comma + 1)) {
    comma = rest.find(',');
    words.push_back(rest.substr(0, comma));
  }
  return words;
}

// Names that the program knows, for options whose value may also be another.
std::vector<std::string> known_values(const std::string& option) {
  std::vector<std::string> values;
  if (option == "--preset")
    for (const ConfigPreset& preset : train_schema().presets) values.emplace_back(preset.name);
  if (option == "--machine")
    for (const ShippedMachine& machine : shipped_machines()) values.emplace_back(machine.name);
  if (option == "--task")
    for (const TrainTask& task : train_tasks()) values.emplace_back(task.name);
  return values;
}

// Zero, negative numbers and empty texts and lists stand for an option that is not given.
std::string captured_default(const CLI::Option& option) {
  const std::string text = option.get_default_str();
  const bool is_unset = text.empty() || text == "0" || text == "[]" || text == "{}" || text[0] == '-';
  return is_unset ? std::string() : text;
}

OptionHelp help_of(const CLI::Option& option) {
  OptionHelp help{.text = option.get_description()};
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  help.choices = words_in_braces(option.get_type_name());
  if (help.choices.empty() && !help.names.empty()) help.choices = known_values(help.names.back());
  if (!option.get_option_text().empty())
    help.value = option.get_option_text();
  else if (option.get_items_expected_max() > 0)
    help.value = help.is_argument() ? option.get_name() : "VALUE";
  if (!help.is_argument() && !help.value.empty()) help.default_text = captured_default(option);
  return help;
}

/// CLI11 knows the value of a variable only once it is told to look.
void capture_defaults(CLI::App& app) {
  for (CLI::Option* option : app.get_options([](CLI::Option*) { return true; }))
    option->capture_default_str();
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) capture_defaults(*sub);
}

CommandHelp help_of(const CLI::App& app) {
  CommandHelp help{.name = app.get_name(), .text = app.get_description()};
  for (const CLI::Option* option : app.get_options()) help.options.push_back(help_of(*option));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!sub->get_group().empty()) help.commands.push_back(help_of(*sub));
  return help;
}

}  // namespace

const CommandHelp* CommandHelp::find(const std::string& command) const noexcept {
  const auto at =
      std::find_if(commands.begin(), commands.end(), [&](const CommandHelp& c) { return c.name == command; });
  return at == commands.end() ? nullptr : &*at;
}

bool CommandHelp::takes_keys() const noexcept {
  return std::any_of(options.begin(), options.end(), [](const OptionHelp& option) {
    return option.is_argument() && option.value.find("key=value") != std::string::npos;
  });
}

CommandHelp command_help() {
  CLI::App app("Trains models larger than GPU memory, using GPU memory, pinned RAM and NVMe", "strata");
  Args args;
  for (const Verb& verb : verbs()) verb.add_options(*add_verb(app, verb), args);
  capture_defaults(app);
  return help_of(app);
}

}  // namespace strata::cli
