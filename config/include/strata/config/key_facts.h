#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

// What the rows of the schema say about keys, beyond their values.

namespace strata {

struct TrainConfig;

/// The entries of run_identity() that are values of keys, by key.
std::map<std::string, std::string> identity_of_keys(const TrainConfig& config);
/// What checkpoints without an entry for `key` were made with: "nothing", unless its row says otherwise.
std::string_view former_value(std::string_view key);

/// Keys that determine how a step runs but change no bit of its results. A plan decides those that are `auto`
/// for its budgets.
const std::vector<std::string>& planned_keys();

}  // namespace strata
