#pragma once

#include <array>

namespace strata::detail {

/// A figure that tells of a run's task beside the loss, and what it is called where there is little room.
struct OfTask {
  const char *series, *label;
};
inline constexpr std::array<OfTask, 6> kOfTask = {{{"reward", "reward"},
                                                   {"kl", "kl"},
                                                   {"entropy", "entropy"},
                                                   {"answer_tokens", "tokens"},
                                                   {"accuracy", "accuracy"},
                                                   {"margin", "margin"}}};

}  // namespace strata::detail
