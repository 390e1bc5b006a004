#include "print.h"

#include <unistd.h>

#include <strata/runtime/str.h>
#include <strata/runtime/terminal_text.h>

#include "exit_code.h"

namespace strata::cli {

void print(std::FILE* to, std::string_view text) {
  if (!is_terminal(to)) return print_exact(to, text);
  print_exact(to, terminal_text(text));
}

void print_exact(std::FILE* to, std::string_view text) { std::fwrite(text.data(), 1, text.size(), to); }

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

int print_error(const Args& args, std::string_view verb, const Status& status) {
  const std::string_view message = status.message();
  // A line that begins with a space continues the problem above it.
  auto problems = 1;
  for (std::size_t at = message.find('\n'); at != std::string_view::npos; at = message.find('\n', at + 1))
    if (message.substr(at + 1, 1) != " ") ++problems;
  std::string text = str("strata ", verb, ": ");
  if (problems > 1) text += str(problems, " problems\n  ");
  for (const char c : message) text += c == '\n' && problems > 1 ? std::string("\n  ") : std::string(1, c);
  print(args.err, text + "\n");
  return exit_code(status);
}

}  // namespace strata::cli
