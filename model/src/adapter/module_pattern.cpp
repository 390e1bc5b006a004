#include "adapter/module_pattern.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

using State = ModulePattern::State;
using Kind = State::Kind;
using Bytes = std::vector<bool>;

constexpr std::size_t kBytes = 256;
constexpr int kMostRepeats = 1000;

bool is_word(unsigned char c) { return std::isalnum(c) != 0 || c == '_'; }

template <class Is>
Bytes bytes_that(const Is& is) {
  Bytes bytes(kBytes);
  for (std::size_t c = 0; c < kBytes; ++c) bytes[c] = is(static_cast<unsigned char>(c));
  return bytes;
}

/// The class of "\d", "\W" and the like; none for another letter.
std::optional<Bytes> named_class(char letter) {
  const bool is_not = letter == 'D' || letter == 'W' || letter == 'S';
  switch (letter) {
    case 'd':
    case 'D':
      return bytes_that([&](unsigned char c) { return (std::isdigit(c) != 0) != is_not; });
    case 'w':
    case 'W':
      return bytes_that([&](unsigned char c) { return is_word(c) != is_not; });
    case 's':
    case 'S':
      return bytes_that([&](unsigned char c) { return (std::isspace(c) != 0) != is_not; });
    default:
      return std::nullopt;
  }
}

/// A piece of the automaton, whose open end is state `last`: its `next` is not set yet.
struct Piece {
  std::int32_t first, last;
};

/// Recursive descent over the pattern; the first error is kept.
class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  Result<std::int32_t> run(std::vector<State>& states) {
    const Piece whole = alternatives(0);
    if (error_.is_ok() && at_ < pattern_.size()) fail(Code::invalid, "an unbalanced ')'");
    STRATA_TRY(error_);
    states_[index(whole.last)].next = add({Kind::match});
    states = std::move(states_);
    return whole.first;
  }

 private:
  static std::size_t index(std::int32_t state) { return static_cast<std::size_t>(state); }
  bool is_at(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!is_at(text)) return false;
    at_ += text.size();
    return true;
  }
  void fail(Code code, std::string_view what) {
    if (error_.is_ok())
      error_ = Status::error(code, str("'", pattern_, "' has ", what, " at character ", at_));
    at_ = pattern_.size();
  }
  std::int32_t add(State state) {
    if (states_.size() >= ModulePattern::kMostStates) {
      fail(Code::invalid, str("more than ", ModulePattern::kMostStates, " states, counting repetitions,"));
      return 0;
    }
    states_.push_back(std::move(state));
    return static_cast<std::int32_t>(states_.size()) - 1;
  }
  /// A split whose open end is taken by nothing but what follows.
  std::int32_t join() { return add({Kind::split}); }
  Piece of(State state) {
    const std::int32_t only = add(std::move(state));
    return {only, only};
  }
  Piece sequence_of(const Piece& a, const Piece& b) {
    states_[index(a.last)].next = b.first;
    return {a.first, b.last};
  }

  Piece alternatives(int depth) {
    if (depth > ModulePattern::kDeepest) {
      fail(Code::invalid, str("more than ", ModulePattern::kDeepest, " groups in each other"));
      return {0, 0};
    }
    Piece all = sequence(depth);
    while (take("|")) {
      const Piece more = sequence(depth);
      const std::int32_t fork = add({Kind::split, all.first, more.first}), end = join();
      states_[index(all.last)].next = states_[index(more.last)].next = end;
      all = {fork, end};
    }
    return all;
  }
  Piece sequence(int depth) {
    const std::int32_t empty = join();
    Piece all = {empty, empty};
    while (at_ < pattern_.size() && !is_at("|") && !is_at(")")) all = sequence_of(all, repeated(depth));
    return all;
  }
  // The operand is parsed again for each repetition, so that each has states of its own.
  Piece repeated(int depth) {
    const std::size_t begin = at_;
    Piece all = atom(depth);
    const std::size_t end_of_atom = at_;
    int least = 1, most = 1;
    if (!repetition(least, most)) return all;
    const std::size_t end = at_;
    // As in Python, a place cannot be repeated.
    const Kind kind = states_[index(all.first)].kind;
    const bool is_place =
        kind == Kind::begin || kind == Kind::end || kind == Kind::boundary || kind == Kind::no_boundary;
    if (end_of_atom == begin || (is_place && all.first == all.last))
      fail(Code::invalid, "a repetition of nothing");
    const auto again = [&] {
      at_ = begin;
      const Piece piece = atom(depth);
      if (error_.is_ok()) at_ = end;
      return piece;
    };
    const Piece once = all;
    const std::int32_t empty = join();
    all = {empty, empty};
    bool is_first = true;
    const auto next = [&] { return std::exchange(is_first, false) ? once : again(); };
    for (int i = 0; i < least && error_.is_ok(); ++i) all = sequence_of(all, next());
    if (most < 0) return sequence_of(all, any_number_of(next()));
    for (int i = least; i < most && error_.is_ok(); ++i) all = sequence_of(all, maybe(next()));
    return all;
  }
  Piece any_number_of(const Piece& piece) {
    const std::int32_t end = join(), fork = add({Kind::split, piece.first, end});
    states_[index(piece.last)].next = fork;
    return {fork, end};
  }
  Piece maybe(const Piece& piece) {
    const std::int32_t end = join(), fork = add({Kind::split, piece.first, end});
    states_[index(piece.last)].next = end;
    return {fork, end};
  }
  // Which of several matches is found does not matter, so lazy repetitions are the others.
  bool repetition(int& least, int& most) {
    if (take("*"))
      least = 0, most = -1;
    else if (take("+"))
      least = 1, most = -1;
    else if (take("?"))
      least = 0, most = 1;
    else if (!counts(least, most))
      return false;
    if (is_at("+")) fail(Code::unsupported, "a possessive repetition, which strata does not have,");
    take("?");
    int again = 0, ignored = 0;
    if (is_at("*") || is_at("+") || is_at("?") || counts(again, ignored))
      fail(Code::invalid, "a repetition of a repetition");
    return true;
  }
  /// "{2}", "{2,}", "{,3}" or "{2,3}"; anything else in braces is text, as in Python.
  bool counts(int& least, int& most) {
    if (!is_at("{")) return false;
    const std::size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return false;
    const std::string_view inner = pattern_.substr(at_ + 1, close - at_ - 1);
    const std::size_t comma = inner.find(',');
    const auto number = [](std::string_view digits, int otherwise) -> std::optional<int> {
      if (digits.empty()) return otherwise;
      if (digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string_view::npos)
        return std::nullopt;
      return std::stoi(std::string(digits));
    };
    const auto low = number(inner.substr(0, comma), 0);
    const auto high = comma == std::string_view::npos ? low : number(inner.substr(comma + 1), -1);
    if (!low || !high || (comma == std::string_view::npos && inner.empty())) return false;
    at_ = close + 1;
    if (*low > kMostRepeats || *high > kMostRepeats || (*high >= 0 && *high < *low))
      fail(Code::invalid,
           str("the repetition {", inner, "}, which must go up to at most ", kMostRepeats, ","));
    least = *low;
    most = *high;
    return true;
  }

  Piece atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return of({Kind::byte_of, -1, -1, bracketed()});
    if (take("^")) return of({Kind::begin});
    if (take("$")) return of({Kind::end});
    if (take("\\")) return escaped();
    if (take(".")) return of({Kind::byte_of, -1, -1, bytes_that([](unsigned char c) { return c != '\n'; })});
    int least = 0, most = 0;
    if (is_at("*") || is_at("+") || is_at("?") || counts(least, most))
      fail(Code::invalid, "a repetition of nothing");
    if (at_ >= pattern_.size()) return {0, 0};
    return one_byte(static_cast<unsigned char>(pattern_[at_++]));
  }
  Piece one_byte(unsigned char byte) {
    return of({Kind::byte_of, -1, -1, bytes_that([byte](unsigned char c) { return c == byte; })});
  }
  Piece group(int depth) {
    std::optional<Kind> ahead;
    if (take("?="))
      ahead = Kind::ahead;
    else if (take("?!"))
      ahead = Kind::not_ahead;
    else if (take("?P<")) {
      const std::size_t close = pattern_.find('>', at_);
      if (close == std::string_view::npos)
        fail(Code::invalid, "a group's name without its end");
      else
        at_ = close + 1;
    } else if (!take("?:") && is_at("?")) {
      fail(Code::unsupported,
           is_at("?<") ? "a lookbehind, which strata does not have,"
                       : "a group of a kind that strata does not have (flags, references, conditions)");
    }
    if (ahead && std::exchange(is_ahead_, true))
      fail(Code::unsupported, "a lookahead in a lookahead, which strata does not have,");
    const Piece inner = alternatives(depth + 1);
    if (ahead) is_ahead_ = false;
    if (!take(")")) fail(Code::invalid, "a '(' without its ')'");
    if (!ahead || !error_.is_ok()) return inner;
    states_[index(inner.last)].next = add({Kind::match});
    return of({*ahead, -1, inner.first});
  }
  Piece escaped() {
    if (at_ >= pattern_.size()) {
      fail(Code::invalid, "a '\\' without a character");
      return {0, 0};
    }
    const char letter = pattern_[at_++];
    if (auto bytes = named_class(letter)) return of({Kind::byte_of, -1, -1, *std::move(bytes)});
    if (letter == 'b') return of({Kind::boundary});
    if (letter == 'B') return of({Kind::no_boundary});
    if (letter == 'A') return of({Kind::begin});
    if (letter == 'Z') return of({Kind::end});
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
      fail(Code::unsupported, str("'\\", letter, "', which strata does not have,"));
    return one_byte(static_cast<unsigned char>(letter));
  }
  Bytes bracketed() {
    const bool is_not = take("^");
    Bytes bytes(kBytes);
    for (bool is_first = true; at_ < pattern_.size() && (is_first || !is_at("]")); is_first = false) {
      Bytes class_bytes;
      const int low = member(class_bytes);
      if (low < 0) {
        for (std::size_t c = 0; c < class_bytes.size(); ++c) bytes[c] = bytes[c] || class_bytes[c];
        continue;
      }
      int high = low;
      if (is_at("-") && pattern_.substr(at_ + 1, 1) != "]" && at_ + 1 < pattern_.size()) {
        ++at_;
        high = member(class_bytes);
      }
      if (high < low) fail(Code::invalid, "a range of characters that goes down");
      for (int c = low; c <= high; ++c) bytes[static_cast<std::size_t>(c)] = true;
    }
    if (!take("]")) fail(Code::invalid, "a '[' without its ']'");
    if (is_not) bytes.flip();
    return bytes;
  }
  /// A byte of a class; -1 for a class in it.
  int member(Bytes& class_bytes) {
    const char c = pattern_[at_++];
    if (c != '\\' || at_ >= pattern_.size()) return static_cast<unsigned char>(c);
    const char letter = pattern_[at_++];
    if (auto found = named_class(letter)) {
      class_bytes = *std::move(found);
      return -1;
    }
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0)
      fail(Code::unsupported, str("'\\", letter, "' in brackets, which strata does not have,"));
    return static_cast<unsigned char>(letter);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool is_ahead_ = false;
  std::vector<State> states_;
  Status error_;
};

}  // namespace

bool is_module_pattern(std::string_view text) noexcept {
  return text.find_first_of("*+?[](){}|\\^$") != std::string_view::npos;
}

Result<ModulePattern> ModulePattern::parse(std::string_view pattern) {
  ModulePattern parsed;
  STRATA_TRY_ASSIGN(parsed.first_, Parser(pattern).run(parsed.states_));
  return parsed;
}

bool ModulePattern::matches(std::string_view name) const { return reaches_match(first_, name, 0, true); }

// A lookahead has none in it, so this does not go deeper.
bool ModulePattern::holds(const State& state, std::string_view name, std::size_t at) const {
  const auto is_word_at = [&](std::size_t i) {
    return i < name.size() && is_word(static_cast<unsigned char>(name[i]));
  };
  const bool boundary = (at > 0 && is_word_at(at - 1)) != is_word_at(at);
  switch (state.kind) {
    case Kind::begin:
      return at == 0;
    case Kind::end:
      return at == name.size();
    case Kind::boundary:
      return boundary;
    case Kind::no_boundary:
      return !boundary;
    case Kind::ahead:
      return reaches_match(state.other, name, at, false);
    case Kind::not_ahead:
      return !reaches_match(state.other, name, at, false);
    default:
      return true;
  }
}

bool ModulePattern::reaches_match(std::int32_t first, std::string_view name, std::size_t at,
                                  bool whole) const {
  std::vector<std::int32_t> now, next;
  std::vector<bool> seen;
  const auto enter = [&](std::vector<std::int32_t>& into, std::int32_t from, std::size_t position) {
    std::vector<std::int32_t> open = {from};
    while (!open.empty()) {
      const std::int32_t i = open.back();
      open.pop_back();
      if (i < 0 || seen[static_cast<std::size_t>(i)]) continue;
      seen[static_cast<std::size_t>(i)] = true;
      const State& state = states_[static_cast<std::size_t>(i)];
      if (state.kind == Kind::byte_of || state.kind == Kind::match)
        into.push_back(i);
      else if (state.kind == Kind::split)
        open.insert(open.end(), {state.other, state.next});
      else if (holds(state, name, position))
        open.push_back(state.next);
    }
  };
  seen.assign(states_.size(), false);
  enter(now, first, at);
  for (;; ++at) {
    const bool is_match = std::any_of(now.begin(), now.end(), [&](std::int32_t i) {
      return states_[static_cast<std::size_t>(i)].kind == Kind::match;
    });
    if (is_match && (!whole || at == name.size())) return true;
    if (at == name.size() || now.empty()) return false;
    next.clear();
    seen.assign(states_.size(), false);
    for (const std::int32_t i : now) {
      const State& state = states_[static_cast<std::size_t>(i)];
      if (state.kind == Kind::byte_of && state.bytes[static_cast<unsigned char>(name[at])])
        enter(next, state.next, at + 1);
    }
    now.swap(next);
  }
}

}  // namespace strata::detail
