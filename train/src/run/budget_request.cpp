#include <strata/train/budget_request.h>

#include <algorithm>

#include <strata/runtime/config/config.h>
#include <strata/runtime/str.h>

namespace strata {

Status BudgetRequest::check(const std::vector<std::string>& assignments) {
  std::vector<std::string> problems;
  for (const std::string& assignment : assignments)
    if (!assignment.starts_with("memory.device=") && !assignment.starts_with("memory.pinned=") &&
        !assignment.starts_with("memory.nvme="))
      problems.push_back(
          str(assignment,
              ": only memory.device, memory.pinned and memory.nvme can be changed while a run trains"));
  return config_problems(problems);
}

Status BudgetRequest::submit(const std::vector<std::string>& assignments) const {
  std::string text;
  for (const std::string& assignment : assignments) text += assignment + "\n";
  return write_text_atomically(io_, path_, text);
}

Result<std::vector<std::string>> BudgetRequest::consume() const {
  const std::string taken = path_ + ".taken";
  STRATA_TRY(io_.rename(path_, taken));
  auto assignments = read(taken);
  STRATA_TRY(io_.remove_all(taken));
  return assignments;
}

Result<std::vector<std::string>> BudgetRequest::read(const std::string& path) const {
  constexpr std::uint64_t kLimit = 64 << 10;
  STRATA_TRY_ASSIGN(const std::string text, read_text(io_, path, kLimit));
  std::vector<std::string> assignments;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) assignments.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  STRATA_TRY(check(assignments));
  return assignments;
}

}  // namespace strata
