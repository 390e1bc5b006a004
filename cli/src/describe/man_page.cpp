#include "describe/man_page.h"

#include <fmt/format.h>

#include <strata/config/train_schema.h>
#include <strata/runtime/str.h>

#include "exit_code.h"

namespace strata::cli {
namespace {

// Text between macros: a hyphen is a minus, and neither a dot nor a quote may begin a line.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else {
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      out += c;
    }
  }
  return out;
}

std::string names_of(const OptionHelp& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += str(names.empty() ? "" : ", ", "\\fB", roff(name), "\\fR");
  if (option.is_argument()) return str("\\fI", roff(option.value), "\\fR");
  return option.value.empty() ? names : str(names, " \\fI", roff(option.value), "\\fR");
}

std::string options_of(const CommandHelp& command) {
  std::string text;
  for (const OptionHelp& option : command.options)
    text += str(".TP\n", names_of(option), "\n", roff(option.text), "\n");
  return text;
}

std::string synopsis_of(const std::string& name, const CommandHelp& command) {
  std::string text = str(".B ", roff(name), "\n");
  for (const OptionHelp& option : command.options)
    text +=
        option.is_argument() ? str("\\fI", roff(option.value), "\\fR\n") : str("[", names_of(option), "]\n");
  return text;
}

std::string head(const std::string& name, const std::string& text, const std::string& version) {
  std::string upper;
  for (const char c : name) upper += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return fmt::format(".TH {} 1 \"\" \"strata {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", roff(upper),
                     version, roff(name), roff(text));
}

std::string exit_codes() {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitMeaning& meaning : kExitMeanings)
    text += fmt::format(".TP\n{}\n{}\n", meaning.code, roff(std::string(meaning.text)));
  return text;
}

std::string keys() {
  std::string text =
      ".SH CONFIGURATION\nKeys of the configuration, with their defaults. Values come from defaults, a "
      "preset, a file, "
      "variables STRATA_SECTION_KEY, and section.key=value on the command line; each takes precedence over "
      "those before it.\n";
  std::string_view section;
  for (const KeySpec& key : train_schema().keys) {
    if (key.section != section) text += fmt::format(".SS [{}]\n", key.section);
    section = key.section;
    text += fmt::format(
        ".TP\n\\fB{}.{}\\fR = {}\n{}\n", roff(std::string(key.section)), roff(std::string(key.name)),
        roff(key.default_text.empty() ? "\"\"" : std::string(key.default_text)), roff(std::string(key.doc)));
  }
  return text;
}

std::string of_verb(const CommandHelp& verb, const std::string& version) {
  const std::string name = "strata " + verb.name;
  std::string text = head("strata-" + verb.name, verb.text, version) + ".SH SYNOPSIS\n";
  if (verb.commands.empty()) text += synopsis_of(name, verb);
  for (std::size_t i = 0; i < verb.commands.size(); ++i)
    text += str(i > 0 ? ".br\n" : "", synopsis_of(str(name, " ", verb.commands[i].name), verb.commands[i]));
  text += str(".SH DESCRIPTION\n", roff(verb.text), ".\n");
  if (verb.commands.empty()) text += str(".SH OPTIONS\n", options_of(verb));
  for (const CommandHelp& action : verb.commands)
    text += str(".SH \"", roff(str(name, " ", action.name)), "\"\n", roff(action.text), ".\n",
                options_of(action));
  if (verb.takes_keys()) text += "Keys of the configuration are in \\fBstrata\\fR(1).\n";
  return text + exit_codes() + ".SH SEE ALSO\n.BR strata (1)\n";
}

}  // namespace

std::string man_page(const CommandHelp& strata, const std::string& verb, const std::string& version) {
  if (const CommandHelp* const found = strata.find(verb)) return of_verb(*found, version);
  std::string text = head("strata", strata.text, version) +
                     ".SH SYNOPSIS\n.B strata\n\\fIVERB\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n" +
                     roff(strata.text) + ".\n.SH VERBS\n";
  std::string also;
  for (const CommandHelp& each : strata.commands) {
    text += str(".TP\n\\fB", roff(each.name), "\\fR\n", roff(each.text), "\n");
    also += fmt::format(".BR strata\\-{} (1){}\n", each.name, &each == &strata.commands.back() ? "" : ",");
  }
  return text + keys() + exit_codes() + ".SH SEE ALSO\n" + also;
}

}  // namespace strata::cli
