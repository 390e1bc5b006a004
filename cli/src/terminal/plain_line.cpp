#include "terminal/plain_line.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace strata::cli {

Result<std::optional<std::string>> read_plain_line(const std::string& prompt) {
  if (::isatty(STDIN_FILENO) != 0) {
    std::fputs(prompt.c_str(), stdout);
    std::fflush(stdout);
  }
  char* text = nullptr;
  std::size_t capacity = 0;
  const auto n = ::getline(&text, &capacity, stdin);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  if (n < 0 && std::ferror(stdin) != 0) return Status::error(Code::io_error, "standard input cannot be read");
  if (n < 0) return std::optional<std::string>();
  std::string line(text, static_cast<std::size_t>(n));
  if (line.ends_with('\n')) line.pop_back();
  return std::optional(std::move(line));
}

}  // namespace strata::cli
