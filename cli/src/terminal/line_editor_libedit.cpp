#include "terminal/line_editor.h"

#include <editline/readline.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "terminal/plain_line.h"

namespace strata::cli {
namespace {

constexpr int kKept = 1000;  // lines

volatile std::sig_atomic_t line_interrupted = 0;

bool edits() { return ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0; }

}  // namespace

LineEditor::LineEditor(std::string history) : history_(std::move(history)) {
  if (!edits()) return;
  std::setlocale(LC_CTYPE, "");  // so that a character of several bytes is one
  ::using_history();
  ::stifle_history(kKept);
  if (!history_.empty()) ::read_history(history_.c_str());
}

// A history that cannot be written is not worth an error.
LineEditor::~LineEditor() {
  if (!edits() || history_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(history_).parent_path(), ignored);
  ::write_history(history_.c_str());
  std::filesystem::permissions(
      history_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, ignored);
}

Result<std::optional<std::string>> LineEditor::read(const std::string& prompt) {
  if (!edits()) return read_plain_line(prompt);
  line_interrupted = 0;
  auto* const before = std::signal(SIGINT, [](int) { line_interrupted = 1; });
  const std::unique_ptr<char, decltype(&std::free)> line(::readline(prompt.c_str()), &std::free);
  std::signal(SIGINT, before);
  if (line == nullptr) {
    std::puts("");
    return line_interrupted != 0 ? std::optional(std::string()) : std::optional<std::string>();
  }
  if (*line != '\0') ::add_history(line.get());
  return std::optional<std::string>(line.get());
}

}  // namespace strata::cli
