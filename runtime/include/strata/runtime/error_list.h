#pragma once

#include <string>

#include <strata/runtime/status.h>

namespace strata {

/// Collects errors that are reported together, so that a user can correct all of them at once.
class ErrorList {
 public:
  /// Adds the error; ok is ignored.
  void add(const Status& status);
  bool empty() const noexcept { return code_ == Code::ok; }
  /// Ok if there was no error. Otherwise all messages, on lines of their own, with the code of the first.
  Status status() const;

 private:
  Code code_ = Code::ok;
  std::string text_;
};

}  // namespace strata
