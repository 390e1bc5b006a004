#pragma once

#include <string>
#include <vector>

#include "describe/command_help.h"

namespace strata::cli {

struct Completion {
  std::string word, text;
};
/// The completions of the last of the words: verbs, actions, options, their values, and keys of the
/// configuration with theirs. `words`: what is on the command line behind "strata"; the last one may be
/// empty. None where the shell knows better, as for files.
std::vector<Completion> complete(const CommandHelp& strata, const std::vector<std::string>& words);
/// A script for "bash", "zsh" or "fish" that asks complete().
std::string completion_script(const std::string& shell);

}  // namespace strata::cli
