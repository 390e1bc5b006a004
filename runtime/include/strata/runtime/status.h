#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tl/expected.hpp>

namespace strata {

/// The kind of failure. Callers branch on it, and the CLI maps it to its exit code.
enum class Code : std::uint8_t {
  ok,
  invalid,        ///< a wrong argument, config value or file content
  not_found,      ///< a file, tensor or key that does not exist
  does_not_fit,   ///< a budget is too small; nothing was changed
  out_of_memory,  ///< the system refused memory although the budget allowed it
  io_error,       ///< a read, write or sync failed
  no_space,       ///< the file system is full
  corrupt,        ///< a checksum, length or structure is wrong
  unsupported,    ///< this build or this machine cannot do it
  cancelled,      ///< skipped because earlier work failed, or because a stop was requested
  timeout,
  diverged,   ///< NaN or infinity where training needs a finite number
  lost_peer,  ///< another rank of the run has failed, ended or hangs
  internal,   ///< an exception from a third-party library, or a bug
};
std::string_view to_string(Code code) noexcept;

/// The outcome of an operation that can fail: ok, or a code and a message that names the object and the
/// numbers. A plain value; ok allocates nothing. Thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  static Status ok() noexcept { return {}; }
  /// Control characters in `message` other than newline and tab are replaced by `\xNN`.
  static Status error(Code code, std::string message);
  /// That the heap is exhausted; needs no memory itself.
  static Status heap_exhausted() noexcept;

  bool is_ok() const noexcept { return state_ == nullptr; }
  explicit operator bool() const noexcept { return is_ok(); }
  Code code() const noexcept { return state_ ? state_->code : Code::ok; }
  std::string_view message() const noexcept { return state_ ? std::string_view(state_->message) : "ok"; }
  /// "io_error: reading chunk 3: ..."
  std::string to_string() const;
  /// Prepends what was being done: "reading chunk 3: <message>". Ok stays ok.
  Status annotate(std::string_view doing) &&;
  Status annotate(std::string_view doing) const&;
  friend bool operator==(const Status& a, const Status& b) noexcept {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct State {
    Code code;
    std::string message;
  };
  std::shared_ptr<const State> state_;  // shared, because a stream's first error is returned to many waiters
};

/// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Status> {
 public:
  using Base = tl::expected<T, Status>;
  using Base::Base;
  // Not expected's own, which ends the program if copying the value throws.
  Result(const Result& other) requires std::is_copy_constructible_v<T>
      : Base(other.has_value() ? Base(tl::in_place, *other) : Base(tl::unexpect, other.error())) {}
  Result& operator=(const Result& other) requires std::is_copy_constructible_v<T> {
    return *this = Result(other);
  }
  Result(Result&&) = default;             // NOLINT(performance-noexcept-move-constructor): as expected's
  Result& operator=(Result&&) = default;  // NOLINT(performance-noexcept-move-constructor)
  Result(Status error) : Base(tl::unexpect, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  const Status& status() const& noexcept {
    static const Status ok;
    return this->has_value() ? ok : this->error();
  }
};

/// Thrown only by must(); the library itself never throws.
class Error : public std::exception {
 public:
  explicit Error(Status status);
  const char* what() const noexcept override { return text_.c_str(); }
  const Status& status() const noexcept { return status_; }

 private:
  Status status_;
  std::string text_;
};

namespace detail {
[[noreturn]] void throw_error(Status status);
}  // namespace detail

/// Returns the value or throws Error, for callers that cannot continue after a failure (the CLI, examples,
/// tests).
template <class T>
T must(Result<T>&& result) {
  if (!result.has_value()) detail::throw_error(std::move(result).error());
  return std::move(*result);
}
inline void must(Status status) {
  if (!status.is_ok()) detail::throw_error(std::move(status));
}

}  // namespace strata

#define STRATA_CONCAT_INNER(a, b) a##b
#define STRATA_CONCAT(a, b) STRATA_CONCAT_INNER(a, b)

/// Returns from the enclosing function when `expr` (a Status) is an error.
#define STRATA_TRY(expr)                                                                                   \
  do {                                                                                                     \
    if (::strata::Status strata_try_status = (expr); !strata_try_status.is_ok()) return strata_try_status; \
  } while (false)

/// `STRATA_TRY_ASSIGN(const Extent e, table.find(id));` declares `e`, or returns the error of a Result.
#define STRATA_TRY_ASSIGN(decl, expr) \
  STRATA_TRY_ASSIGN_INNER(STRATA_CONCAT(strata_result_, __LINE__), decl, expr)
#define STRATA_TRY_ASSIGN_INNER(tmp, decl, expr)                         \
  auto tmp = (expr);                                                     \
  if (!tmp.has_value()) return ::strata::Status(std::move(tmp).error()); \
  decl = std::move(*tmp)
