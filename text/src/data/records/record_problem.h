#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>

namespace strata::detail {

/// A record with its keys in the order of the file, in which a template writes those of tools.
using RecordJson = nlohmann::ordered_json;

/// An error in a record. Problems of one kind are counted together.
struct Problem {
  std::string kind;
  std::string message;
};
/// A problem of this kind is one of the whole file: every further record would have it for the same reason.
inline constexpr std::string_view kOfFile = "kind";
using Outcome = std::optional<Problem>;

/// A user's text for a message: shortened and without control characters.
std::string shown_text(std::string_view text);
/// "its keys: a, b"
std::string keys_of(const RecordJson& record);
/// "a string", "an array", "null"
std::string kind_of(const RecordJson& value);

/// Sets `found` to the string at `key`, or returns the problem.
Outcome string_at(const RecordJson& object, const char* key, bool may_be_empty, const std::string*& found);
/// The string at `key`; empty if there is none, or null.
Outcome optional_string_at(const RecordJson& object, const char* key, std::string& into);

/// The problems of a file; the message has one line per kind.
class ProblemsByKind {
 public:
  /// Adds `n` problems of one kind, of which the first is at `where`.
  void add(const std::string& where, Problem problem, std::uint64_t n = 1);
  bool none() const noexcept { return found_.empty(); }
  Status status(const std::string& path) const;

 private:
  struct Found {
    std::string where;
    Problem first;
    std::uint64_t others;
  };
  std::vector<Found> found_;
};

}  // namespace strata::detail
