#include "describe/complete.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <strata/config/train_schema.h>

namespace strata::cli {
namespace {

void add(std::vector<Completion>& to, const std::string& start, const std::string& word,
         const std::string& text) {
  if (word.starts_with(start)) to.push_back({word, text});
}

// Up to the first end of a sentence or clause.
std::string short_text(const std::string& text) { return text.substr(0, text.find_first_of(";(:")); }

std::vector<std::string> words_of(std::string_view choices) {
  std::vector<std::string> words;
  while (!choices.empty()) {
    const std::size_t bar = choices.find('|');
    words.emplace_back(choices.substr(0, bar));
    choices = bar == std::string_view::npos ? std::string_view() : choices.substr(bar + 1);
  }
  return words;
}

std::vector<std::string> values_of(const KeySpec& key) {
  std::vector<std::string> values = words_of(key.choices);
  if (key.type == KeyType::boolean) values = {"true", "false"};
  if (key.allows_auto) values.emplace_back("auto");
  if (!key.unlimited_word.empty()) values.emplace_back(key.unlimited_word);
  const std::string name = std::string(key.section) + "." + std::string(key.name);
  if (name == train_schema().preset_key)
    for (const ConfigPreset& preset : train_schema().presets) values.emplace_back(preset.name);
  return values;
}

// "mem" becomes "memory.", "memory.p" becomes "memory.pinned=", and that its values.
void complete_key(const std::string& word, std::vector<Completion>& found) {
  const bool has_section = word.find('.') != std::string::npos, has_key = word.find('=') != std::string::npos;
  std::set<std::string> sections;
  for (const KeySpec& key : train_schema().keys) {
    const std::string name = std::string(key.section) + "." + std::string(key.name) + "=";
    if (!has_section && sections.insert(std::string(key.section)).second)
      add(found, word, std::string(key.section) + ".", "section of the configuration");
    if (has_section && !has_key) add(found, word, name, short_text(std::string(key.doc)));
    if (has_key && word.starts_with(name))
      for (const std::string& value : values_of(key)) add(found, word, name + value, "");
  }
}

const OptionHelp* option_named(const CommandHelp& command, const std::string& name) {
  for (const OptionHelp& option : command.options)
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
  return nullptr;
}

}  // namespace

std::vector<Completion> complete(const CommandHelp& strata, const std::vector<std::string>& words) {
  std::vector<Completion> found;
  if (words.empty()) return found;
  const CommandHelp* command = &strata;
  std::size_t begin = 0;
  while (begin + 1 < words.size() && command->find(words[begin]) != nullptr)
    command = command->find(words[begin++]);
  const std::string& word = words.back();
  if (words.size() >= begin + 2) {
    const OptionHelp* before = option_named(*command, words[words.size() - 2]);
    if (before != nullptr && !before->value.empty()) {
      for (const std::string& choice : before->choices) add(found, word, choice, "");
      return found;
    }
  }
  if (!word.starts_with('-'))
    for (const CommandHelp& each : command->commands) add(found, word, each.name, each.text);
  if (word.starts_with('-'))
    for (const OptionHelp& option : command->options)
      for (const std::string& name : option.names) add(found, word, name, short_text(option.text));
  if (!word.starts_with('-') && command->takes_keys()) complete_key(word, found);
  return found;
}

std::string completion_script(const std::string& shell) {
  if (shell == "bash")
    return R"(# Completion of strata for bash: source this file, or put it into
# ~/.local/share/bash-completion/completions/strata
_strata() {
  local line=${COMP_LINE:0:COMP_POINT} words=() candidates=() candidate
  read -r -a words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  local word=${words[-1]}
  mapfile -t candidates < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
  # bash replaces what follows the last '=' or ':' of the word.
  local kept=${word%"${word##*[=:]}"}
  COMPREPLY=()
  for candidate in "${candidates[@]}"; do
    candidate=${candidate%%$'\t'*}
    COMPREPLY+=("${candidate#"$kept"}")
  done
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[.=] ]] && compopt -o nospace
  return 0
}
complete -o default -F _strata strata
)";
  if (shell == "zsh")
    return R"(#compdef strata
# Completion of strata for zsh: put this file as _strata into a folder of $fpath.
_strata() {
  local -a lines open whole
  local line word
  lines=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  for line in $lines; do
    word=${line%%$'\t'*}
    [[ -z $word ]] && continue
    if [[ $word == *[.=] ]]; then open+=($word); else whole+=($word); fi
  done
  (( $#open )) && compadd -S '' -- $open
  (( $#whole )) && compadd -- $whole
  (( $#open + $#whole )) || _files
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _strata "$@"
else
  compdef _strata strata
fi
)";
  return R"(# Completion of strata for fish: put this file into ~/.config/fish/completions/strata.fish
function __strata_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] complete -- $words[2..] 2>/dev/null
end
# Files only where strata knows no word.
complete -c strata -f -n 'count (__strata_complete) >/dev/null' -a '(__strata_complete)'
)";
}

}  // namespace strata::cli
