// strata config convert: a configuration of DeepSpeed, axolotl or LLaMA-Factory as one of strata.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/ds_config/ds_config.h>
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

std::string findings_as_json(const std::vector<DsFinding>& findings, bool is_ok) {
  std::string rows;
  for (const DsFinding& one : findings)
    rows += str(
        rows.empty() ? "" : ",\n  ", "{\"key\": ", json_string(one.key), ", \"value\": ", one.value,
        ", \"verdict\": ", json_string(to_string(one.verdict)), ", \"strata\": ", json_string(one.strata_key),
        ", \"set\": ", one.strata_value.empty() ? "null" : one.strata_value,
        ", \"default\": ", one.is_default ? "true" : "false", ", \"reason\": ", json_string(one.reason), "}");
  return str("{\"ok\": ", is_ok ? "true" : "false", ",\n \"rows\": [", rows,
             "],\n \"toml\": ", is_ok ? json_string(ds_config_toml(findings)) : "null", "}\n");
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

bool is_yaml(std::string_view file) { return file.ends_with(".yaml") || file.ends_with(".yml"); }

Result<std::vector<DsFinding>> convert(const std::string& file, const std::string& text) {
  if (!is_yaml(file)) return convert_ds_config(text);
  STRATA_TRY_ASSIGN(YamlConversion conversion, convert_trainer_yaml(text));
  return std::move(conversion.findings);
}

Result<std::vector<DsFinding>> read_and_convert(const std::string& file) {
  STRATA_TRY_ASSIGN(const std::string text, read_text(posix_io(), file, kMaxBytes));
  auto findings = convert(file, text);
  if (!findings.has_value()) return findings.status().annotate(file);
  return findings;
}

}  // namespace

int run_config_convert(const Args& args) {
  if (args.rows) return print_rows(args);
  if (args.items.empty())
    return print_error(args, "config convert", Status::error(Code::invalid, "name the file to convert"));
  const std::string& file = args.items[0];
  const auto findings = read_and_convert(file);
  if (!findings.has_value()) return print_error(args, "config convert", findings.status());
  const Status problems = ds_config_problems(*findings);
  // A file of DeepSpeed is part of a program that goes on with it, so that nothing may be missing. A file of
  // a trainer is converted once, and what is missing is for its reader to decide.
  const bool prints_settings = problems.is_ok() || is_yaml(file);
  print(args.out, args.json ? findings_as_json(*findings, problems.is_ok())
                            : findings_as_toml(file, *findings, prints_settings));
  return problems.is_ok() ? kExitOk : print_error(args, "config convert", problems);
}

}  // namespace strata::cli
