#pragma once

#include <string>
#include <vector>

#include <strata/runtime/io.h>

namespace strata::cli {

/// The file in a run's folder by which it is asked for other budgets: key=value, a line each. Whoever asks
/// writes it whole; the run takes it before its next step, or when it is resumed.
class BudgetRequest {
 public:
  BudgetRequest(Io& io, const std::string& run) : io_(io), path_(run + "/budget.request") {}

  /// Errors: `invalid` for what is no budget, all at once.
  static Status check(const std::vector<std::string>& assignments);
  /// In place of one that was not yet taken.
  Status submit(const std::vector<std::string>& assignments) const;
  bool is_pending() const { return io_.exists(path_); }
  /// Errors: those of the file and of check().
  Result<std::vector<std::string>> read() const { return read(path_); }
  /// Takes it away and reads it: one that is made meanwhile stays.
  Result<std::vector<std::string>> consume() const;

 private:
  Result<std::vector<std::string>> read(const std::string& path) const;
  Io& io_;
  const std::string path_;
};

}  // namespace strata::cli
