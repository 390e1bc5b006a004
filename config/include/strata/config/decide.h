#pragma once

#include <string>
#include <string_view>

#include <strata/runtime/config/config.h>

namespace strata {

struct LoadedConfig;
struct TrainConfig;

/// Gives a key that is `auto` its value and the reason, in the tree that users see and in the struct that the
/// run reads, so that the two cannot differ. Asserts if the key is not `auto`, as ConfigTree::resolve() does.
void decide(ConfigTree& tree, TrainConfig& config, std::string_view key, ConfigValue value, std::string why);
void decide(LoadedConfig& loaded, std::string_view key, ConfigValue value, std::string why);

}  // namespace strata
