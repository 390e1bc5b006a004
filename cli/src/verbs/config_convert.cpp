// strata config convert: a configuration of DeepSpeed, axolotl or LLaMA-Factory as one of strata.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/config/train_schema.h>
#include <strata/ds_config/ds_config.h>
#include <strata/runtime/config/config.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>
#include <strata/yaml_config/yaml_config.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{16} << 20;

int print_rows(const Args& args) {
  std::string out;
  for (const DsRow& row : ds_rows())
    out += args.json
               ? str(out.empty() ? "[" : ",\n ", "{\"key\": ", json_string(row.key),
                     ", \"verdict\": ", json_string(to_string(row.verdict)),
                     ", \"strata\": ", json_string(row.strata_keys),
                     ", \"reason\": ", json_string(row.reason), "}")
               : str(row.key, "\t", to_string(row.verdict), "\t", row.strata_keys, "\t", row.reason, "\n");
  print(args.out, args.json ? out + "]\n" : out);
  return kExitOk;
}

/// Refuses what strata's keys do not take, such as a share where steps are counted.
void check_values(std::vector<DsFinding>& findings) {
  for (DsFinding& one : findings) {
    if (one.strata_value.empty()) continue;
    const auto tree = ConfigTree::build(
        train_schema(), {.file = "converted.toml", .file_text = ds_config_toml(std::span(&one, 1))});
    if (tree.has_value()) continue;
    const std::string why(tree.status().message());
    one.verdict = DsVerdict::refused;
    one.reason = why.substr(std::min(why.find(one.strata_key), why.size()));
    one.strata_value.clear();
  }
}

std::string findings_as_json(const std::vector<DsFinding>& findings, bool is_ok, bool prints_settings) {
  std::string rows;
  for (const DsFinding& one : findings)
    rows += str(
        rows.empty() ? "" : ",\n  ", "{\"key\": ", json_string(one.key), ", \"value\": ", one.value,
        ", \"verdict\": ", json_string(to_string(one.verdict)), ", \"strata\": ", json_string(one.strata_key),
        ", \"set\": ", one.strata_value.empty() ? "null" : one.strata_value,
        ", \"default\": ", one.is_default ? "true" : "false", ", \"reason\": ", json_string(one.reason), "}");
  return str("{\"ok\": ", is_ok ? "true" : "false", ",\n \"rows\": [", rows,
             "],\n \"toml\": ", prints_settings ? json_string(ds_config_toml(findings)) : "null", "}\n");
}

/// The table as comments, so that all of the output is a configuration.
std::string findings_as_toml(const std::string& file, const std::vector<DsFinding>& findings,
                             bool prints_settings) {
  std::string out = str("# From ", json_string(file), ":\n");
  const std::string table = ds_config_table(findings);
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = table.find('\n', at);
    out += str("#   ", table.substr(at, end - at), "\n");
    at = end + 1;
  }
  return prints_settings ? str(out, "\n", ds_config_toml(findings)) : out;
}

/// A file of DeepSpeed is JSON, whose first mark is a brace; comments may precede it.
bool is_yaml(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (!line.empty() && !line.starts_with("//") && !line.starts_with("/*") && !line.starts_with("*"))
      return !line.starts_with('{') && !line.starts_with('[');
    at = end + 1;
  }
  return false;
}

Result<std::vector<DsFinding>> convert(const std::string& text) {
  if (!is_yaml(text)) return convert_ds_config(text);
  STRATA_TRY_ASSIGN(YamlConversion conversion, convert_trainer_yaml(text));
  return std::move(conversion.findings);
}

}  // namespace

int run_config_convert(const Args& args) {
  if (args.rows) return print_rows(args);
  if (args.items.empty())
    return print_error(args, "config convert", Status::error(Code::invalid, "name the file to convert"));
  const std::string& file = args.items[0];
  const auto text = read_text(posix_io(), file, kMaxBytes);
  if (!text.has_value()) return print_error(args, "config convert", text.status());
  auto findings = convert(*text);
  if (!findings.has_value()) return print_error(args, "config convert", findings.status().annotate(file));
  check_values(*findings);
  const Status problems = ds_config_problems(*findings);
  // A file of DeepSpeed is part of a program that goes on with it, so that nothing may be missing. A file of
  // a trainer is converted once, and what is missing is for its reader to decide.
  const bool prints_settings = problems.is_ok() || is_yaml(*text);
  print(args.out, args.json ? findings_as_json(*findings, problems.is_ok(), prints_settings)
                            : findings_as_toml(file, *findings, prints_settings));
  return problems.is_ok() ? kExitOk : print_error(args, "config convert", problems);
}

}  // namespace strata::cli
