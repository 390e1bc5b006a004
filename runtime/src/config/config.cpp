#include <strata/runtime/config/config.h>

#include <algorithm>
#include <cctype>
#include <map>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>
#include <strata/runtime/config/suggest.h>

#include "config/config_raw.h"
#include "io/small_file.h"

namespace strata {
namespace {

using detail::one_line;

using detail::RawAssignment;
using detail::RawKind;
using detail::RawLayer;
using detail::RawValue;

constexpr std::size_t kFileLimitBytes = 1 << 20;  // a config is a few KiB; a mistyped path may name anything

std::string full_name(const KeySpec& spec) { return str(spec.section, ".", spec.name); }

RawValue untyped(std::string_view text) { return {false, {{RawKind::untyped, std::string(text)}}}; }

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

/// Collects the assignments of all layers and merges them by precedence. Lives for one build().
class Builder {
 public:
  Builder(const ConfigSchema& schema, const ConfigSources& sources) : schema_(schema), sources_(sources) {}

  Result<std::vector<ConfigEntry>> build() {
    entries_ = std::vector<ConfigEntry>(schema_.keys.size());
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      entries_[i].spec = &schema_.keys[i];
      assign(entries_[i], untyped(schema_.keys[i].default_text), "default");
    }
    RawLayer file, environment, arguments;
    const Status file_status = read_file(file);
    read_environment(environment);
    read_arguments(arguments);
    apply_preset({&file, &environment, &arguments});
    RawLayer found;
    for (const ConfigLayer& layer : sources_.discovered)
      for (const auto& [key, text] : layer.values) add(found, key, untyped(text), layer.origin);
    for (const RawLayer* layer : {&found, &file, &environment, &arguments}) apply(*layer);
    if (!file_status.is_ok() && problems_.empty()) return file_status;
    if (!file_status.is_ok()) problems_.insert(problems_.begin(), std::string(file_status.message()));
    STRATA_TRY(config_problems(problems_));
    return std::move(entries_);
  }

 private:
  Status read_file(RawLayer& layer) {
    if (sources_.file.empty() && !sources_.file_text) return Status::ok();
    const std::string origin = str("file ", one_line(sources_.file));
    std::string text;
    if (sources_.file_text) {
      text = *sources_.file_text;
    } else {
      auto read = detail::read_small_file(sources_.file, kFileLimitBytes);
      if (!read) return std::move(read).error().annotate("file");
      text = std::move(*read);
    }
    if (text.size() > kFileLimitBytes)
      return Status::error(Code::invalid,
                           str(origin, ": is larger than ", kFileLimitBytes, " bytes, the maximum size"));
    const bool json = sources_.file.ends_with(".json");
    json ? detail::read_json(text, origin, layer) : detail::read_toml(text, origin, layer);
    // toml++ sorts tables by name, but a reader expects problems in the order of the lines.
    const auto line_of = [](const RawAssignment& a) {
      return std::atoi(a.origin.c_str() + a.origin.rfind(':') + 1);
    };
    std::stable_sort(layer.assignments.begin(), layer.assignments.end(),
                     [&](const RawAssignment& a, const RawAssignment& b) { return line_of(a) < line_of(b); });
    return Status::ok();
  }

  void read_environment(RawLayer& layer) {
    std::map<std::string, std::string, std::less<>> known;  // variable -> key
    for (const KeySpec& spec : schema_.keys)
      known[str("STRATA_", upper(spec.section), "_", upper(spec.name))] = full_name(spec);
    for (const EnvName& special : schema_.env_names)
      known[std::string(special.name)] = std::string(special.key);
    std::vector<std::string_view> names;
    for (const auto& [name, key] : known) names.push_back(name);
    for (const std::string& variable : sources_.environment) {
      if (!variable.starts_with("STRATA_")) continue;
      const std::size_t equals = std::min(variable.find('='), variable.size());
      const std::string name = variable.substr(0, equals);
      const std::string origin = str("environment ", one_line(name));
      const auto found = known.find(name);
      if (found == known.end()) {
        const std::string renamed = renamed_variable(name);
        layer.problems.push_back(
            str(origin, renamed.empty() ? str(": unknown variable", did_you_mean(name, names)) : renamed));
      } else if (!found->second.empty()) {
        const std::string value = equals < variable.size() ? variable.substr(equals + 1) : std::string();
        add(layer, found->second, untyped(value), origin);
      }
    }
  }

  void read_arguments(RawLayer& layer) {
    if (!sources_.preset.empty())
      add(layer, std::string(schema_.preset_key), untyped(sources_.preset),
          str("argument --preset ", one_line(sources_.preset)));
    for (const std::string& argument : sources_.arguments) {
      const std::string origin = str("argument ", one_line(argument));
      const std::size_t equals = argument.find('=');
      if (equals == std::string::npos)
        layer.problems.push_back(str(origin, ": is not section.key=value"));
      else
        add(layer, argument.substr(0, equals), untyped(std::string_view(argument).substr(equals + 1)),
            origin);
    }
    std::map<std::string, int> times;
    for (const RawAssignment& a : layer.assignments) ++times[str(a.section, ".", a.key)];
    for (const auto& [key, n] : times)
      if (n > 1)
        layer.problems.push_back(str("argument ", one_line(key), ": is given ", n, " times; give it once"));
  }

  static void add(RawLayer& layer, const std::string& key, RawValue value, std::string origin) {
    const std::size_t dot = key.find('.');
    const std::string section = dot == std::string::npos ? "" : key.substr(0, dot);
    layer.assignments.push_back(
        {section, dot == std::string::npos ? key : key.substr(dot + 1), std::move(value), std::move(origin)});
  }

  /// The preset named by the layer of highest precedence overrides the defaults and nothing else.
  void apply_preset(std::initializer_list<const RawLayer*> layers) {
    const RawAssignment* chosen = nullptr;
    for (const RawLayer* layer : layers)
      for (const RawAssignment& a : layer->assignments)
        if (str(a.section, ".", a.key) == schema_.preset_key) chosen = &a;
    if (chosen == nullptr || chosen->value.is_list || chosen->value.items.size() != 1) return;
    const std::string& name = chosen->value.items.front().text;
    if (name.empty()) return;
    std::vector<std::string_view> names;
    std::string known;
    for (const ConfigPreset& preset : schema_.presets) {
      names.push_back(preset.name);
      known += str(known.empty() ? "" : ", ", preset.name);
      if (preset.name != name) continue;
      for (const PresetValue& value : preset.values) {
        RawLayer layer;
        add(layer, std::string(value.key), untyped(value.text), str("preset ", preset.name));
        apply(layer);
      }
      return;
    }
    problems_.push_back(str(chosen->origin, ": there is no preset '", one_line(name), "'; known: ", known,
                            did_you_mean(name, names)));
  }

  void apply(const RawLayer& layer) {
    problems_.insert(problems_.end(), layer.problems.begin(), layer.problems.end());
    for (const RawAssignment& a : layer.assignments) {
      const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const ConfigEntry& entry) {
        return entry.spec->section == a.section && entry.spec->name == a.key;
      });
      if (found == entries_.end())
        report_unknown(a);
      else
        assign(*found, a.value, a.origin);
    }
  }

  void assign(ConfigEntry& entry, const RawValue& raw, const std::string& origin) {
    const KeySpec& spec = *entry.spec;
    const bool is_word = !raw.is_list && raw.items.size() == 1 &&
                         (raw.items[0].kind == RawKind::untyped || raw.items[0].kind == RawKind::text);
    const bool automatic = spec.allows_auto && is_word && raw.items[0].text == "auto";
    if (!automatic) {
      Result<ConfigValue> parsed = detail::parse_value(spec, raw);
      if (!parsed) {
        const std::string_view now =
            is_word ? renamed_to(str(full_name(spec), "=", raw.items[0].text)) : std::string_view();
        problems_.push_back(
            now.empty()
                ? str(origin, ": ", full_name(spec), " ", one_problem(parsed.error().message()), hint(spec))
                : str(origin, ": ", full_name(spec), "=", raw.items[0].text, " is now ", now));
        return;
      }
      entry.value = std::move(*parsed);
    }
    entry.raw = detail::print_raw(raw);
    entry.origin = origin;
    entry.automatic = automatic;
  }

  static std::string one_problem(std::string_view text) {
    const bool quoted = text.starts_with('\'');
    return str(quoted ? "= " : "", one_line(text));
  }

  static std::string hint(const KeySpec& spec) {
    return spec.example.empty() ? std::string() : str(" (example: ", spec.example, ")");
  }

  /// The present name of an old key or value; empty where there is none.
  std::string_view renamed_to(std::string_view old_name) const {
    for (const RenamedKey& renamed : schema_.renamed)
      if (renamed.old_name == old_name) return renamed.new_name;
    return {};
  }
  std::string renamed_variable(std::string_view name) const {
    const auto variable = [](std::string_view key) {
      const std::size_t dot = key.find('.');
      return str("STRATA_", upper(key.substr(0, dot)), "_", upper(key.substr(dot + 1)));
    };
    for (const RenamedKey& renamed : schema_.renamed)
      if (renamed.old_name.find('=') == std::string_view::npos && variable(renamed.old_name) == name)
        return str(" is now ", variable(renamed.new_name));
    return {};
  }

  void report_unknown(const RawAssignment& a) {
    std::vector<std::string> all, in_section, same_name;
    std::vector<std::string_view> sections;
    for (const KeySpec& spec : schema_.keys) {
      all.push_back(full_name(spec));
      if (spec.section == a.section) in_section.push_back(all.back());
      if (spec.name == a.key) same_name.push_back(all.back());
      if (sections.empty() || sections.back() != spec.section) sections.push_back(spec.section);
    }
    const std::string name = one_line(a.section.empty() ? a.key
                                      : a.key.empty()   ? a.section
                                                        : str(a.section, ".", a.key));
    if (const std::string_view now = renamed_to(name); !now.empty()) {
      problems_.push_back(str(a.origin, ": key '", name, "' is now '", now, "'"));
      return;
    }
    const bool known_section = !in_section.empty();
    if (known_section && a.key.empty()) return;  // an empty section
    if (const OtherWord* const other = find_other_word(schema_, name); other != nullptr) {
      problems_.push_back(str(a.origin, ": unknown key '", name, "'; strata has ", other->key, " for it",
                              other->note.empty() ? "" : ": ", other->note));
      return;
    }
    std::string text = known_section || a.section.empty()
                           ? str("unknown key '", name, "'")
                           : str("unknown section '", one_line(a.section), "'");
    if (!known_section && !a.section.empty() && !a.key.empty()) text += str(" of '", name, "'");
    const auto views = [](const std::vector<std::string>& words) {
      return std::vector<std::string_view>(words.begin(), words.end());
    };
    std::string meant = did_you_mean(name, views(in_section));
    if (meant.empty() && !same_name.empty()) meant = str("; did you mean '", same_name.front(), "'?");
    if (meant.empty() && !known_section) meant = did_you_mean(a.section, sections);
    if (meant.empty()) meant = did_you_mean(name, views(all));
    problems_.push_back(str(a.origin, ": ", text, meant));
  }

  const ConfigSchema& schema_;
  const ConfigSources& sources_;
  std::vector<ConfigEntry> entries_;
  std::vector<std::string> problems_;
};

bool holds_type(KeyType type, const ConfigValue& value) {
  switch (type) {
    case KeyType::boolean:
      return std::holds_alternative<bool>(value);
    case KeyType::integer:
      return std::holds_alternative<std::int64_t>(value);
    case KeyType::number:
    case KeyType::seconds:
      return std::holds_alternative<double>(value);
    case KeyType::text:
    case KeyType::choice:
      return std::holds_alternative<std::string>(value);
    case KeyType::bytes:
      return std::holds_alternative<std::uint64_t>(value);
    case KeyType::steps:
      return std::holds_alternative<StepRange>(value);
    case KeyType::text_list:
      return std::holds_alternative<std::vector<std::string>>(value);
    case KeyType::number_list:
      return std::holds_alternative<std::vector<double>>(value);
  }
  return false;
}

}  // namespace

Result<ConfigTree> ConfigTree::build(const ConfigSchema& schema, const ConfigSources& sources) {
  ConfigTree tree;
  STRATA_TRY_ASSIGN(tree.entries_, Builder(schema, sources).build());
  return tree;
}

Status config_problems(const std::vector<std::string>& problems) {
  if (problems.empty()) return Status::ok();
  std::string text;
  for (const std::string& problem : problems) text += str(text.empty() ? "" : "\n", problem);
  return Status::error(Code::invalid, std::move(text));
}

const ConfigEntry& ConfigTree::entry(std::string_view key) const {
  const std::size_t dot = std::min(key.find('.'), key.size());
  const std::string_view section = key.substr(0, dot), name = key.substr(std::min(dot + 1, key.size()));
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const ConfigEntry& entry) {
    return entry.spec->section == section && entry.spec->name == name;
  });
  STRATA_ASSERT(found != entries_.end(), "the schema has no key ", key);
  return *found;
}

template <class T>
const T& ConfigTree::get(std::string_view key) const {
  const ConfigEntry& found = entry(key);
  STRATA_ASSERT(!found.automatic || found.resolved, key, " is auto and has no value yet");
  const T* value = std::get_if<T>(&found.value);
  STRATA_ASSERT(value != nullptr, key, " is read as a type other than its own");
  return *value;
}
template const bool& ConfigTree::get(std::string_view) const;
template const std::int64_t& ConfigTree::get(std::string_view) const;
template const double& ConfigTree::get(std::string_view) const;
template const std::string& ConfigTree::get(std::string_view) const;
template const std::uint64_t& ConfigTree::get(std::string_view) const;
template const StepRange& ConfigTree::get(std::string_view) const;
template const std::vector<std::string>& ConfigTree::get(std::string_view) const;
template const std::vector<double>& ConfigTree::get(std::string_view) const;

bool ConfigTree::is_auto(std::string_view key) const {
  const ConfigEntry& found = entry(key);
  return found.automatic && !found.resolved;
}

void ConfigTree::resolve(std::string_view key, ConfigValue value, std::string why) {
  ConfigEntry& found = const_cast<ConfigEntry&>(entry(key));  // entry() is const; the entry is ours
  STRATA_ASSERT(found.automatic, key, " was set by ", found.origin, " and cannot be resolved");
  STRATA_ASSERT(holds_type(found.spec->type, value), key, " is resolved to a value of another type");
  found.value = std::move(value);
  found.resolved = true;
  found.why = std::move(why);
}

void ConfigTree::map_paths(
    const std::function<std::string(const ConfigEntry& entry, const std::string& path)>& map) {
  for (ConfigEntry& entry : entries_) {
    if (!entry.spec->is_path || (entry.automatic && !entry.resolved)) continue;
    if (auto* const path = std::get_if<std::string>(&entry.value); path != nullptr && !path->empty())
      *path = map(entry, *path);
    if (auto* const paths = std::get_if<std::vector<std::string>>(&entry.value); paths != nullptr)
      for (std::string& path : *paths) path = map(entry, path);
  }
}

void ConfigTree::replace_texts(std::string_view key, std::vector<std::string> texts) {
  for (ConfigEntry& entry : entries_) {
    if (str(entry.spec->section, ".", entry.spec->name) != key) continue;
    auto* const list = std::get_if<std::vector<std::string>>(&entry.value);
    STRATA_ASSERT(list != nullptr, "the key is not a list of texts", key);
    *list = std::move(texts);
    return;
  }
}

}  // namespace strata
