// Conversations of tests, and templates.
#pragma once

#include <string>
#include <vector>

#include <strata/text/chat.h>

namespace strata::test::conversations {

inline const std::vector<ChatMessage> kFour = {
    {"system", "Be brief."}, {"user", "Hi "}, {"assistant", " Hello"}, {"user", "Bye"}};
inline const std::vector<ChatMessage> kThought = {{"user", "2+2?"},
                                                  {"assistant", "<think>\neasy\n</think>\n\n4"},
                                                  {"user", "3+3?"},
                                                  {"assistant", "<think>\nalso\n</think>\n\n\n6"}};
inline const std::vector<ChatMessage> kThree = {{"user", "Q"}, {"assistant", "A"}, {"user", "R"}};
inline const std::vector<ChatMessage> kShort = {{"user", "Q"}, {"assistant", "A"}};

inline ChatTemplate named(const std::string& name) { return must(ChatTemplate::named(name)); }
inline ChatTemplate own(const std::string& jinja, const SpecialWords& words = {}) {
  return must(ChatTemplate::parse(jinja, words));
}

}  // namespace strata::test::conversations
