#pragma once

#include <span>
#include <string_view>

#include "args.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the namespace of CLI11
class App;
}

namespace strata::cli {

/// A verb: its name and help text, its function, its options and its actions.
struct Verb {
  std::string_view name;
  const char* doc;
  int (*run)(const Args& args);
  void (*add_options)(CLI::App& app, Args& args);
  std::span<const std::string_view> actions = {};
  bool is_hidden = false;  ///< not in the help: for scripts
};

std::span<const Verb> verbs() noexcept;
/// Adds the verb without its options, which its add_options adds.
CLI::App* add_verb(CLI::App& app, const Verb& verb);

}  // namespace strata::cli
