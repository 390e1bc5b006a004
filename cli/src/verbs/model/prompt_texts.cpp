#include "verbs/model/prompt_texts.h"

#include <algorithm>
#include <cstdio>

#include <sys/stat.h>
#include <unistd.h>

#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

constexpr std::size_t kStdinLimit = 16 << 20;

// A terminal would wait for a user who does not know that it does, and /dev/null says nothing.
bool input_is_written() {
  struct stat input {};
  return fstat(STDIN_FILENO, &input) == 0 && (S_ISFIFO(input.st_mode) || S_ISREG(input.st_mode));
}

Result<std::string> text_of_stdin() {
  std::string text;
  char block[4096];
  for (std::size_t n = 0; (n = std::fread(block, 1, sizeof block, stdin)) > 0;) {
    text.append(block, n);
    if (text.size() > kStdinLimit)
      return Status::error(Code::invalid,
                           str("standard input: a prompt longer than ", kStdinLimit, " bytes"));
  }
  if (std::ferror(stdin) != 0) return Status::error(Code::io_error, "standard input could not be read");
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

// The name of a key has no blanks, and a sentence with '=' nearly always does before it.
bool is_text(const std::string& item) {
  return !is_assignment(item) || item.find_first_of(" \t\n") < item.find('=');
}

// A name of a file where a text is expected would be continued as a text, and nobody would notice.
Result<std::string> text_of(const std::string& text) {
  if (text == "-") return text_of_stdin();
  if (posix_io().exists(text))
    return Status::error(Code::invalid, str(text, " is a file or folder, not a text: --prompts ", text,
                                            " continues each line of a file, and --prompt takes any text"));
  return text;
}

}  // namespace

std::vector<std::string> take_texts(std::vector<std::string>& items) {
  std::vector<std::string> texts;
  if (items.empty()) return texts;
  const auto first = std::stable_partition(items.begin() + 1, items.end(),
                                           [](const std::string& item) { return !is_text(item); });
  texts.assign(first, items.end());
  items.erase(first, items.end());
  return texts;
}

Status read_prompt_texts(Args& args, const std::vector<std::string>& texts) {
  const auto problem = [](std::string what) { return Status::error(Code::invalid, std::move(what)); };
  if (!args.prompts_file.empty())
    return texts.empty() ? Status::ok()
                         : problem(str("'", texts.front(), "' cannot be continued beside --prompts"));
  for (const std::string& text : texts) {
    STRATA_TRY_ASSIGN(std::string given, text_of(text));
    args.prompts.push_back(std::move(given));
  }
  if (args.prompts.empty() && input_is_written()) {
    STRATA_TRY_ASSIGN(std::string text, text_of_stdin());
    if (!text.empty()) args.prompts.push_back(std::move(text));
  }
  if (args.prompts.empty())
    return problem(
        "no prompt is given: add a text in quotes behind the model, or --prompts FILE, or write it to "
        "standard "
        "input");
  for (const std::string& text : args.prompts)
    if (text.empty()) return problem("a prompt is empty; it needs at least one character");
  return {};
}

}  // namespace strata::cli
