#include "doctor.h"

#include <fmt/core.h>

#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

std::string as_table(const std::vector<Check>& checks) {
  std::string out;
  for (const Check& check : checks) {
    out += fmt::format("{:<12} {:<10} {}\n", check.name, to_string(check.health), check.detail);
    if (!check.remedy.empty()) out += fmt::format("{:<12} {:<10} -> {}\n", "", "", check.remedy);
  }
  return out;
}

std::string as_json(const std::vector<Check>& checks) {
  std::string out = "{\"checks\": [";
  for (const Check& check : checks)
    out += str(&check == checks.data() ? "\n  " : ",\n  ", "{\"name\": ", json_string(check.name),
               ", \"health\": ", json_string(to_string(check.health)),
               ", \"detail\": ", json_string(check.detail), ", \"remedy\": ", json_string(check.remedy), "}");
  return out + "\n]}\n";
}

}  // namespace

int run_doctor(const Args& args) {
  const std::vector<Check> checks = diagnose(gather_facts(args.nvme_dirs, args.environment));
  print(args.out, args.json ? as_json(checks) : as_table(checks));
  for (const Check& check : checks)
    if (check.health == Health::broken) return exit_code(Status::error(check.code, check.detail));
  return kExitOk;
}

}  // namespace strata::cli
