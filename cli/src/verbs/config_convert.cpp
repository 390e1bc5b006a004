// strata config convert: a configuration of DeepSpeed as one of strata.
#include <cstdint>
#include <string>
#include <vector>

#include <strata/ds_config/ds_config.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

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

/// The table as comments, so that all of the output is a configuration. A configuration from which something
/// that was asked for is missing is not printed.
std::string findings_as_toml(const std::string& file, const std::vector<DsFinding>& findings, bool is_ok) {
  std::string out = str("# From ", json_string(file), ":\n");
  const std::string table = ds_config_table(findings);
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = table.find('\n', at);
    out += str("#   ", table.substr(at, end - at), "\n");
    at = end + 1;
  }
  return is_ok ? str(out, "\n", ds_config_toml(findings)) : out;
}

Result<std::vector<DsFinding>> read_and_convert(const std::string& file) {
  STRATA_TRY_ASSIGN(const std::string text, read_text(posix_io(), file, kMaxBytes));
  auto findings = convert_ds_config(text);
  if (!findings.has_value()) return findings.status().annotate(file);
  return findings;
}

}  // namespace

int run_config_convert(const Args& args) {
  if (args.rows) return print_rows(args);
  if (args.items.empty())
    return print_error(args, "config convert", Status::error(Code::invalid, "name the file to convert"));
  const auto findings = read_and_convert(args.items[0]);
  if (!findings.has_value()) return print_error(args, "config convert", findings.status());
  const Status problems = ds_config_problems(*findings);
  print(args.out, args.json ? findings_as_json(*findings, problems.is_ok())
                            : findings_as_toml(args.items[0], *findings, problems.is_ok()));
  return problems.is_ok() ? kExitOk : print_error(args, "config convert", problems);
}

}  // namespace strata::cli
