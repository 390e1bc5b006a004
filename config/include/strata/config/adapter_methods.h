#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/model/adapter/adapter_settings.h>
#include <strata/runtime/config/config.h>

namespace strata {
struct TrainConfig;
}  // namespace strata

namespace strata::detail {

/// A method of section `adapter`.
struct AdapterMethod {
  std::string_view name;  ///< adapter.method
  /// The keys of the section that it reads, besides method and from.
  std::span<const std::string_view> keys;
  Result<AdapterSettings> (*read)(const TrainConfig& config);
};
/// The method that the configuration names; null for none.
const AdapterMethod* adapter_method(std::string_view name) noexcept;
std::vector<std::string_view> adapter_method_names();
/// Whether the method of that name reads a key of the section, given without the section. None reads `from`.
bool method_reads(std::string_view method, std::string_view key) noexcept;
/// A list as the command line takes it: "a,b", or ["a", "b"] where an item needs quotes.
std::string list_text(const std::vector<std::string>& items);
/// The keys that give these settings, with their values as text; the method comes first.
std::vector<std::pair<std::string, std::string>> adapter_keys_of(const AdapterSettings& settings);
/// The problems of section `adapter`: keys that the method does not read and that were given, values that
/// cannot be read, and what the method cannot be combined with.
void check_adapter(const ConfigTree& tree, const TrainConfig& config, std::vector<std::string>& problems);

}  // namespace strata::detail
