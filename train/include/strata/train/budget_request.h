#pragma once

#include <string>
#include <vector>

#include <strata/runtime/io/io.h>

namespace strata {

/// A file in the run folder that asks the run for other budgets: one key=value per line. It is written
/// atomically; the run consumes it before its next step, or when it is resumed.
class BudgetRequest {
 public:
  BudgetRequest(Io& io, const std::string& run) : io_(io), path_(run + "/budget.request") {}

  /// Errors: `invalid`, with all assignments that are not budgets.
  static Status check(const std::vector<std::string>& assignments);
  /// Writes the request, replacing one that was not consumed yet.
  Status submit(const std::vector<std::string>& assignments) const;
  bool is_pending() const { return io_.exists(path_); }
  /// Errors: those of the file and of check().
  Result<std::vector<std::string>> read() const { return read(path_); }
  /// Removes the request and returns its assignments. A request that is submitted meanwhile stays.
  Result<std::vector<std::string>> consume() const;

 private:
  Result<std::vector<std::string>> read(const std::string& path) const;
  Io& io_;
  const std::string path_;
};

}  // namespace strata
