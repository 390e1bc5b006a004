#include <strata/text/rewards/rewards.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include <locale.h>
#include <regex.h>

#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>

#include "rewards/answer_match.h"
#include "rewards/command_reward.h"

namespace strata {
namespace {

Status wrong(const RewardSpec& spec, const std::string& why) {
  return Status::error(Code::invalid, str("align.reward: '", spec.text, "': ", why));
}

/// A reward of each answer by itself.
class RuleReward : public RewardFunction {
 public:
  Status add(std::span<const AnswerText> answers, double weight, std::span<double> rewards,
             const Stops&) final {
    for (std::size_t i = 0; i < answers.size(); ++i) rewards[i] += weight * value(answers[i]);
    return {};
  }

 private:
  virtual double value(const AnswerText& answer) const = 0;
};

/// Null if the system has none.
::locale_t utf8_locale() {
  static ::locale_t const made = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return made;
}

/// While it lives, this thread's characters are those of UTF-8, and not bytes.
class InUtf8 {
 public:
  InUtf8() : before_(::uselocale(utf8_locale())) {}
  ~InUtf8() { ::uselocale(before_); }
  InUtf8(const InUtf8&) = delete;
  InUtf8& operator=(const InUtf8&) = delete;

 private:
  ::locale_t before_;
};

/// An extended regular expression of POSIX over characters, which needs no more stack for a longer text.
class Regex {
 public:
  static Result<std::unique_ptr<Regex>> compile(const RewardSpec& spec) {
    if (utf8_locale() == nullptr) return wrong(spec, "the system has no locale C.UTF-8");
    std::unique_ptr<Regex> made(new Regex);
    const InUtf8 utf8;
    const int error = ::regcomp(&made->regex_, spec.argument.c_str(), REG_EXTENDED);
    if (error == 0) {
      made->compiled_ = true;
      return made;
    }
    char why[256];
    ::regerror(error, &made->regex_, why, sizeof why);
    return wrong(spec, why);
  }
  ~Regex() {
    if (compiled_) ::regfree(&regex_);
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// The bytes of the first match from `at` on; {-1, -1} if there is none.
  ::regmatch_t find(const std::string& text, std::size_t at) const {
    ::regmatch_t match{};
    const InUtf8 utf8;
    if (::regexec(&regex_, text.c_str() + at, 1, &match, at > 0 ? REG_NOTBOL : 0) != 0) return {-1, -1};
    return match;
  }

 private:
  Regex() = default;
  ::regex_t regex_{};
  bool compiled_ = false;
};

class MatchReward final : public RuleReward {
 public:
  explicit MatchReward(std::unique_ptr<Regex> regex) : regex_(std::move(regex)) {}

 private:
  double value(const AnswerText& answer) const override {
    return regex_->find(answer.answer, 0).rm_so < 0 ? 0 : 1;
  }
  const std::unique_ptr<Regex> regex_;
};

/// The share of an answer's bytes that are part of a match.
class DensityReward final : public RuleReward {
 public:
  explicit DensityReward(std::unique_ptr<Regex> regex) : regex_(std::move(regex)) {}

 private:
  double value(const AnswerText& answer) const override {
    const std::string& text = answer.answer;
    std::size_t matched = 0;
    for (std::size_t at = 0; at < text.size();) {
      const ::regmatch_t match = regex_->find(text, at);
      if (match.rm_so < 0) break;
      matched += static_cast<std::size_t>(match.rm_eo - match.rm_so);
      at += std::max<std::size_t>(static_cast<std::size_t>(match.rm_eo), 1);
    }
    return text.empty() ? 0 : static_cast<double>(matched) / static_cast<double>(text.size());
  }
  const std::unique_ptr<Regex> regex_;
};

/// 1 for an answer of so many bytes, falling to 0 for none and for twice as many.
class LengthReward final : public RuleReward {
 public:
  explicit LengthReward(double length) : length_(length) {}

 private:
  double value(const AnswerText& answer) const override {
    return std::max(0.0, 1 - std::abs(static_cast<double>(answer.answer.size()) - length_) / length_);
  }
  const double length_;
};

class EndedReward final : public RuleReward {
  double value(const AnswerText& answer) const override { return answer.ended ? 1 : 0; }
};

/// 1 if the answer has the string or number "answer" of the prompt's record: see has_answer().
class AnswerReward final : public RewardFunction {
 public:
  Status check(std::span<const AnswerText> prompts) const override {
    for (const AnswerText& prompt : prompts) STRATA_TRY(wanted(prompt).status());
    return {};
  }
  Status add(std::span<const AnswerText> answers, double weight, std::span<double> rewards,
             const Stops&) override {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      STRATA_TRY_ASSIGN(const std::string answer, wanted(answers[i]));
      if (detail::has_answer(detail::folded(answers[i].answer), answer)) rewards[i] += weight;
    }
    return {};
  }

 private:
  static Result<std::string> wanted(const AnswerText& of) {
    const auto record = nlohmann::json::parse(of.record, nullptr, false);
    const auto found = record.is_object() ? record.find("answer") : record.end();
    const bool is_there = record.is_object() && found != record.end();
    std::string wanted;
    if (is_there && found->is_number()) wanted = detail::wanted_answer(found->dump());
    if (is_there && found->is_string()) wanted = detail::wanted_answer(found->get<std::string>());
    if (!wanted.empty()) return wanted;
    return Status::error(Code::invalid, str("align.reward = answer: the prompt '", of.prompt.substr(0, 80),
                                            "' has no \"answer\", a string or a number, in its record"));
  }
};

constexpr RewardKind kKinds[] = {
    {"answer", "", "1 if the answer has the \"answer\" of the prompt's record: that number, or those words"},
    {"matches", "REGEX", "1 if the answer has a match of the extended regular expression"},
    {"density", "REGEX", "the share of the answer's bytes that are in matches"},
    {"length", "N", "1 for answers of N bytes, falling to 0 for none and for 2 N"},
    {"ended", "", "1 if the model ended the answer by itself"},
    {"command", "COMMAND", "a number for each answer from a command of the shell, which reads JSON lines"},
    {kModelReward, "RUN|FOLDER", "the score of a reward model"},
};

Result<double> number_of(const RewardSpec& spec, std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size() && std::isfinite(value))
    return value;
  return wrong(spec, str("'", text, "' is not a number"));
}

Result<double> length_of(const RewardSpec& spec) {
  STRATA_TRY_ASSIGN(const double length, number_of(spec, spec.argument));
  if (length >= 1) return length;
  return wrong(spec, "the length must be at least 1");
}

}  // namespace

std::span<const RewardKind> reward_kinds() noexcept { return kKinds; }

Result<RewardSpec> parse_reward(const std::string& text) {
  RewardSpec spec;
  spec.text = text;
  std::string_view rest = text;
  // A weight is a number, so that a star in an argument is not taken for one.
  if (const std::size_t star = rest.find('*'); star < rest.find(':')) {
    STRATA_TRY_ASSIGN(spec.weight, number_of(spec, rest.substr(0, star)));
    rest.remove_prefix(star + 1);
  }
  const std::size_t colon = std::min(rest.find(':'), rest.size());
  spec.kind = rest.substr(0, colon);
  spec.argument = rest.substr(std::min(colon + 1, rest.size()));
  std::string names;
  for (const RewardKind& kind : kKinds) {
    names += str(names.empty() ? "" : ", ", kind.name);
    if (kind.name != spec.kind) continue;
    if (kind.argument.empty() != spec.argument.empty())
      return wrong(spec, kind.argument.empty() ? str(kind.name, " has no argument")
                                               : str("write ", kind.name, ":", kind.argument));
    if (spec.kind == "length") STRATA_TRY(length_of(spec).status());
    if (spec.kind == "matches" || spec.kind == "density") STRATA_TRY(Regex::compile(spec).status());
    return spec;
  }
  return wrong(spec, str("the kinds of rewards are ", names));
}

Result<std::unique_ptr<RewardFunction>> create_reward(const RewardSpec& spec) {
  const auto made = [](auto reward) { return std::unique_ptr<RewardFunction>(std::move(reward)); };
  if (spec.kind == "answer") return made(std::make_unique<AnswerReward>());
  if (spec.kind == "ended") return made(std::make_unique<EndedReward>());
  if (spec.kind == "command") {
    STRATA_TRY_ASSIGN(auto command, detail::CommandReward::start(spec.argument));
    return made(std::move(command));
  }
  if (spec.kind == "length") {
    STRATA_TRY_ASSIGN(const double length, length_of(spec));
    return made(std::make_unique<LengthReward>(length));
  }
  STRATA_TRY_ASSIGN(std::unique_ptr<Regex> regex, Regex::compile(spec));
  if (spec.kind == "matches") return made(std::make_unique<MatchReward>(std::move(regex)));
  return made(std::make_unique<DensityReward>(std::move(regex)));
}

}  // namespace strata
