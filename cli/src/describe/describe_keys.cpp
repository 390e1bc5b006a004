#include "describe/describe_keys.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

std::string full_name(const KeySpec& key) { return str(key.section, ".", key.name); }

std::string number_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{:g}", value);
}

std::string range_text(const KeySpec& key) {
  const bool low = std::isfinite(key.min), high = std::isfinite(key.max);
  if (low && high) return " from " + number_text(key.min) + " to " + number_text(key.max);
  if (low) return " of at least " + number_text(key.min);
  return high ? " of at most " + number_text(key.max) : std::string();
}

// The values that may be written behind "key=".
std::string accepts_text(const KeySpec& key) {
  std::string text;
  switch (key.type) {
    case KeyType::boolean:
      text = "true or false";
      break;
    case KeyType::integer:
      text = "an integer" + range_text(key);
      break;
    case KeyType::number:
      text = "a number" + range_text(key);
      break;
    case KeyType::text:
      text = key.is_path ? "a path" : "text";
      break;
    case KeyType::bytes:
      text = "bytes: a number, or one with KiB, MiB, GiB or TiB (KB, MB, GB, TB)";
      break;
    case KeyType::seconds:
      text = "a time: seconds, or a number with s, min, h or d";
      break;
    case KeyType::steps:
      text = "steps: true, false, one, or a range such as 10-12";
      break;
    case KeyType::choice: {
      text = std::string(key.choices);
      for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 4))
        text.replace(at, 1, " or ");
      break;
    }
    case KeyType::text_list:
      text = key.is_path ? "paths, separated by commas" : "a list, separated by commas";
      break;
    case KeyType::number_list:
      text = "numbers" + range_text(key) + ", separated by commas";
      break;
  }
  if (key.allows_auto) text += ", or auto";
  if (!key.unlimited_word.empty()) text += str(", or ", key.unlimited_word);
  return text;
}

std::string variable_of(const ConfigSchema& schema, const KeySpec& key) {
  for (const EnvName& name : schema.env_names)
    if (name.key == full_name(key)) return std::string(name.name);
  std::string variable = str("STRATA_", key.section, "_", key.name);
  for (char& c : variable)
    c = c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

std::string default_of(const KeySpec& key) {
  return key.default_text.empty() ? "empty" : std::string(key.default_text);
}

std::string about(const ConfigSchema& schema, const KeySpec& key) {
  std::string text = str(full_name(key), "\n  ", key.doc, "\n  accepts   ", accepts_text(key),
                         "\n  default   ", default_of(key), "\n  variable  ", variable_of(schema, key), "\n");
  if (!key.example.empty()) text += str("  example   ", key.example, "\n");
  std::string presets;
  for (const ConfigPreset& preset : schema.presets)
    for (const PresetValue& value : preset.values)
      if (value.key == full_name(key))
        presets += str(presets.empty() ? "" : ", ", preset.name, " ", value.text);
  if (!presets.empty()) text += "  presets   " + presets + "\n";
  return text;
}

std::string json_bounds(const KeySpec& key) {
  std::string text;
  if (std::isfinite(key.min)) text += ", \"minimum\": " + number_text(key.min);
  if (std::isfinite(key.max)) text += ", \"maximum\": " + number_text(key.max);
  return text;
}

// Beside its own type a key accepts words, such as auto.
std::string json_type(const KeySpec& key) {
  std::string words;
  const auto add = [&](std::string_view word) { words += str(words.empty() ? "" : ", ", json_string(word)); };
  std::string_view rest = key.choices;
  while (!rest.empty()) {
    add(rest.substr(0, rest.find('|')));
    rest = rest.find('|') == std::string_view::npos ? std::string_view() : rest.substr(rest.find('|') + 1);
  }
  if (key.allows_auto) add("auto");
  if (!key.unlimited_word.empty()) add(key.unlimited_word);
  std::string type;
  switch (key.type) {
    case KeyType::boolean:
      type = "{\"type\": \"boolean\"}";
      break;
    case KeyType::integer:
      type = "{\"type\": \"integer\"" + json_bounds(key) + "}";
      break;
    case KeyType::number:
      type = "{\"type\": \"number\"" + json_bounds(key) + "}";
      break;
    case KeyType::text:
      type = "{\"type\": \"string\"}";
      break;
    case KeyType::choice:
      break;
    case KeyType::bytes:
      type =
          R"({"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9.]+ *([kKMGT]i?)?B?$"})";
      break;
    case KeyType::seconds:
      type =
          R"({"type": "number", "minimum": 0}, {"type": "string", "pattern": "^[0-9.]+ *(ms|s|min|h|d)?$"})";
      break;
    case KeyType::steps:
      type =
          R"({"type": "boolean"}, {"type": "integer"}, {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"})";
      break;
    case KeyType::text_list:
      type = str("{\"type\": \"array\", \"items\": {\"type\": \"string\"}}",
                 key.accepts_scalar ? ", {\"type\": \"string\"}" : "");
      break;
    case KeyType::number_list:
      type = "{\"type\": \"array\", \"items\": {\"type\": \"number\"" + json_bounds(key) + "}}";
      break;
  }
  if (!words.empty()) type += str(type.empty() ? "" : ", ", "{\"enum\": [", words, "]}");
  return type;
}

std::string cell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
    text.replace(at, 1, "\\|");
  return text;
}

}  // namespace

Result<std::string> explain_key(const ConfigSchema& schema, const std::string& name) {
  std::string text;
  std::vector<std::string> names;
  for (const KeySpec& key : schema.keys) {
    names.push_back(full_name(key));
    if (name == names.back() || name == key.section) text += (text.empty() ? "" : "\n") + about(schema, key);
  }
  if (!text.empty()) return text;
  std::string similar = did_you_mean(name, std::vector<std::string_view>(names.begin(), names.end()));
  for (const std::string& each : names)
    if (similar.empty() && each.ends_with("." + name)) similar = "; did you mean '" + each + "'?";
  return Status::error(Code::invalid, str("there is no key '", name, "'", similar));
}

std::string config_json_schema(const ConfigSchema& schema) {
  std::string text =
      "{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \"Configuration of "
      "strata\",\n  "
      "\"type\": \"object\",\n  \"additionalProperties\": false,\n  \"properties\": {";
  std::string_view section;
  for (const KeySpec& key : schema.keys) {
    const bool opens = key.section != section;
    if (opens)
      text += str(section.empty() ? "\n" : "\n      }\n    },\n", "    ", json_string(key.section),
                  ": {\n      \"type\": \"object\",\n      \"additionalProperties\": false,\n      "
                  "\"properties\": {");
    section = key.section;
    text += str(opens ? "\n" : ",\n", "        ", json_string(key.name),
                ": {\"description\": ", json_string(key.doc), ", \"anyOf\": [", json_type(key), "]}");
  }
  return text + "\n      }\n    }\n  }\n}\n";
}

std::string key_reference(const ConfigSchema& schema) {
  std::string text =
      "# Keys of the configuration\n\nWritten by `strata config reference`; `strata config explain KEY` says "
      "the same of one.\n";
  std::string_view section;
  for (const KeySpec& key : schema.keys) {
    if (key.section != section)
      text += str("\n## `[", key.section,
                  "]`\n\n| key | default | accepts | meaning |\n| --- | --- | --- | --- |\n");
    section = key.section;
    text += str("| `", full_name(key), "` | ",
                key.default_text.empty() ? std::string() : str("`", cell(std::string(key.default_text)), "`"),
                " | ", cell(accepts_text(key)), " | ", cell(std::string(key.doc)), " |\n");
  }
  return text;
}

}  // namespace strata::cli
