#include "command_line.h"

#include <algorithm>
#include <exception>
#include <new>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "other_programs.h"
#include "print.h"
#include "verb_table.h"

namespace strata::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  strata train --preset austen-5m --out runs/demo\n"
    "  strata plan --preset austen-5m memory.pinned=16MiB\n"
    "  strata plan models/gpt2\n"
    "  strata plan --machine h200 --params 13b model.seq=2048 train.micro_batch=8\n"
    "  strata bench --nvme-dir /mnt/nvme\n"
    "  strata verify --preset austen-5m\n"
    "  strata generate runs/demo --prompt \"Elizabeth \"\n"
    "  strata generate models/gpt2 --prompts questions.txt --top-p 0.9 --json\n"
    "  strata eval runs/demo --data unseen.txt\n"
    "  strata score models/gpt2 --in pairs.jsonl --out scores.jsonl\n"
    "  strata trace runs/demo --steps 10-12\n"
    "  strata data inspect qa.tokens --tokenizer tokenizer.json --seq 512\n"
    "  strata train --init models/gpt2 data.train=notes.txt --out runs/tuned\n"
    "  strata export runs/tuned --out models/tuned --dtype bf16 --check\n"
    "  strata config show --preset austen-5m --origin\n"
    "  strata config check run.toml memory.device=64MiB\n"
    "  strata config convert ds_config.json > run.toml\n"
    "  strata doctor --nvme-dir /mnt/nvme\n"
    "Values come from: defaults < preset < file < STRATA_<SECTION>_<KEY> < section.key=value.\n"
    "Exit codes:\n";

std::string footer() {
  std::string text = kExamples;
  for (const ExitMeaning& meaning : kExitMeanings)
    text += str(meaning.code < 10 ? "   " : "  ", meaning.code, "  ", meaning.text, "\n");
  return text;
}

int usage_error(std::FILE* err, std::string_view text) {
  print(err, str("strata: ", text, "\nRun 'strata --help'.\n"));
  return kExitUsage;
}

template <class Words>
std::string join(const Words& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

/// `help`, `help VERB` and `version`, as many programs have them, as options.
void options_for_words(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.size() > 3) return;
  if (arguments[0] == "version" && arguments.size() == 1) arguments = {"--version"};
  if (arguments[0] != "help") return;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
}

/// The error for an unknown verb or action; empty if there is none. CLI11 refuses them too, but without a
/// suggestion.
std::string unknown_word(const std::vector<std::string>& arguments) {
  std::vector<std::string_view> names;
  for (const Verb& verb : verbs())
    if (!verb.is_hidden) names.push_back(verb.name);
  if (arguments.empty()) return str("no verb given; known: ", join(names));
  if (arguments[0].starts_with('-')) return {};
  const auto verb =
      std::find_if(verbs().begin(), verbs().end(), [&](const Verb& v) { return v.name == arguments[0]; });
  if (verb == verbs().end())
    return str("unknown verb '", arguments[0], "'", verb_that_is_meant(arguments[0], names));
  if (verb->actions.empty() || (arguments.size() > 1 && arguments[1].starts_with('-'))) return {};
  if (arguments.size() < 2) return str(verb->name, ": missing action; known: ", join(verb->actions));
  const auto actions = verb->actions;
  if (std::find(actions.begin(), actions.end(), arguments[1]) != actions.end()) return {};
  return str(verb->name, ": unknown action '", arguments[1], "'; known: ", join(actions),
             did_you_mean(arguments[1], actions));
}

/// The subcommands that the arguments name, outermost first, after the app itself.
std::vector<const CLI::App*> named_subcommands(const CLI::App& app) {
  std::vector<const CLI::App*> named = {&app};
  while (!named.back()->get_subcommands().empty()) named.push_back(named.back()->get_subcommands().front());
  return named;
}

void print_help(std::FILE* out, const CLI::App& app) {
  const std::vector<const CLI::App*> named = named_subcommands(app);
  std::string parents;  // help() itself adds the last name
  for (std::size_t i = 0; i + 1 < named.size(); ++i)
    parents += str(parents.empty() ? "" : " ", named[i]->get_name());
  print(out, named.back()->help(parents));
}

/// The errors for unknown options, one per line; empty if there are none. CLI11 refuses them too, but without
/// a suggestion, and it complains about a missing option before a misspelt one.
std::string unknown_options(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::Option* option : named_subcommands(app).back()->get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  std::string text;
  for (const std::string& given : app.remaining(true)) {
    if (!given.starts_with('-') || given.find_first_not_of('-') == std::string::npos) continue;
    const std::string name = given.substr(0, given.find('='));
    text += str(text.empty() ? "" : "\n", "unknown option '", name, "'", option_that_is_meant(name, known));
  }
  return text;
}

int run(std::vector<std::string> arguments, Args args) {
  options_for_words(arguments);
  if (const std::string problem = unknown_word(arguments); !problem.empty())
    return usage_error(args.err, problem);
  CLI::App app("Trains models larger than GPU memory, using GPU memory, pinned RAM and NVMe", "strata");
  app.set_version_flag("--version", std::string("strata " STRATA_VERSION));
  app.require_subcommand(1);
  int (*chosen)(const Args&) = nullptr;
  for (const Verb& verb : verbs()) {
    CLI::App* sub = add_verb(app, verb);
    verb.add_options(*sub, args);
    sub->callback([&chosen, function = verb.run] { chosen = function; });
  }
  app.footer(footer());  // after the verbs, which would inherit it: they end with their own options
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 expects them in reverse order
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    print_help(args.out, app);
    return kExitOk;
  } catch (const CLI::CallForVersion& version) {
    print(args.out, str(version.what(), "\n"));
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    const std::string unknown = unknown_options(app);
    return usage_error(args.err, unknown.empty() ? error.what() : unknown);
  }
  return chosen(args);
}

}  // namespace

int run_command_line(std::vector<std::string> arguments, std::vector<std::string> environment, std::FILE* out,
                     std::FILE* err) noexcept {
  int code = kExitInternal;
  try {
    Args args;
    args.environment = std::move(environment);
    args.out = out;
    args.err = err;
    code = run(std::move(arguments), std::move(args));
  } catch (const Error& error) {  // thrown by must()
    code = exit_code(error.status());
    print(err, std::string("strata: ") + error.what() + "\n");
  } catch (const std::bad_alloc&) {
    code = kExitFit;
    std::fputs("strata: out of memory\n", err);
  } catch (const std::exception& error) {
    print(err, std::string("strata: ") + error.what() + "\n");
  }
  // A full disk or a closed pipe is noticed only now, and truncated output must not look like success.
  if (std::fflush(out) != 0 || std::ferror(out) != 0) {
    std::fprintf(err, "strata: the output could not be written\n");
    if (code == kExitOk) code = kExitIo;
  }
  return code;
}

}  // namespace strata::cli
