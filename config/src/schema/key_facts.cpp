#include <strata/config/key_facts.h>

#include <algorithm>

#include <strata/config/adapter_methods.h>
#include <strata/config/decide.h>
#include <strata/runtime/assert.h>

#include "schema/sections.h"

namespace strata {
namespace {

bool has_entry(const TrainKey& key, const TrainConfig& config) {
  const KeyIdentity& identity = key.facts.identity;
  if (identity.kind != KeyIdentity::Kind::entry) return false;
  if (key.spec.section == "adapter" && key.spec.name != "method" &&
      !detail::method_reads(config.adapter.method, key.spec.name))
    return false;
  return identity.condition == nullptr || identity.condition(config);
}

const TrainKey* find_key(std::string_view name) {
  const auto keys = train_keys();
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const TrainKey& each) { return each.name() == name; });
  return key == keys.end() ? nullptr : &*key;
}

}  // namespace

std::map<std::string, std::string> identity_of_keys(const TrainConfig& config) {
  std::map<std::string, std::string> entries;
  for (const TrainKey& key : train_keys())
    if (has_entry(key, config)) {
      const auto text = key.facts.identity.text;
      entries.emplace(key.name(), text != nullptr ? text(config) : key.field.text(config));
    }
  return entries;
}

std::string_view former_value(std::string_view name) {
  const TrainKey* const key = find_key(name);
  return key == nullptr ? "nothing" : key->facts.identity.former;
}

void decide(ConfigTree& tree, TrainConfig& config, std::string_view name, ConfigValue value,
            std::string why) {
  const TrainKey* const key = find_key(name);
  STRATA_ASSERT(key != nullptr, "there is no key", name);
  tree.resolve(name, std::move(value), std::move(why));
  key->field.fill(tree.entry(name), config);
}

const std::vector<std::string>& planned_keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> planned;
    for (const TrainKey& key : train_keys())
      if (key.facts.planned) planned.push_back(key.name());
    return planned;
  }();
  return names;
}

}  // namespace strata
