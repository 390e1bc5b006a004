// The only file that includes toml++: its header costs seconds of compile time.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
// Its parser asserts on some damaged files before it reports them; what a file can cause must not abort.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include <exception>

#include <fmt/format.h>

#include <strata/runtime/str.h>

#include "config_raw.h"

namespace strata::detail {
namespace {

RawScalar scalar_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return {RawKind::text, node.ref<std::string>()};
    case toml::node_type::integer:
      return {RawKind::integer, fmt::format("{}", node.ref<std::int64_t>())};
    case toml::node_type::floating_point:
      return {RawKind::number, fmt::format("{}", node.ref<double>())};
    case toml::node_type::boolean:
      return {RawKind::boolean, node.ref<bool>() ? "true" : "false"};
    case toml::node_type::none:
      return {RawKind::other, "nothing"};
    case toml::node_type::table:
      return {RawKind::other, "a table"};
    case toml::node_type::array:
      return {RawKind::other, "a list"};
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return {RawKind::other, "a date or time"};
  }
  return {RawKind::other, "an unknown thing"};
}

RawValue value_of(const toml::node& node) {
  RawValue value;
  if (const toml::array* list = node.as_array()) {
    value.is_list = true;
    for (const toml::node& item : *list) value.items.push_back(scalar_of(item));
  } else {
    value.items.push_back(scalar_of(node));
  }
  return value;
}

void read_document(const toml::table& document, std::string_view origin, RawLayer& into) {
  for (const auto& [name, node] : document) {
    const toml::table* section = node.as_table();
    if (section == nullptr) {
      into.problems.push_back(str(origin, ":", name.source().begin.line, ": '", name.str(),
                                  "' stands outside a section; write it below a line like [model]"));
      continue;
    }
    for (const auto& [key, value] : *section)
      into.assignments.push_back({std::string(name.str()), std::string(key.str()), value_of(value),
                                  str(origin, ":", key.source().begin.line)});
    if (section->empty())  // so that an unknown section is refused even when nothing is in it
      into.assignments.push_back(
          {std::string(name.str()), "", {}, str(origin, ":", name.source().begin.line)});
  }
}

}  // namespace

void read_toml(std::string_view text, std::string_view origin, RawLayer& into) {
  try {
    const toml::parse_result result = toml::parse(text);
    if (result.failed()) {
      const toml::parse_error& error = result.error();
      into.problems.push_back(
          str(origin, ":", error.source().begin.line, ": not TOML: ", error.description()));
      return;
    }
    read_document(result.table(), origin, into);
  } catch (const std::exception& error) {  // bad_alloc
    into.problems.push_back(str(origin, ": ", error.what()));
  }
}

}  // namespace strata::detail
