#include <algorithm>

#include <strata/config/train_schema.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/config/load_config.h>

#include "describe/describe_keys.h"
#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

std::string problems_as_json(const Status& status) {
  std::string out = str("{\"ok\": ", status.is_ok() ? "true" : "false", ", \"problems\": [");
  std::string_view rest = status.is_ok() ? std::string_view() : status.message();
  for (bool first = true; !rest.empty(); first = false) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    out += str(first ? "" : ", ", json_string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return out + "]}\n";
}

int show(const Args& args, const ConfigTree& tree) {
  print(args.out, args.json ? tree.to_json(args.origin) : tree.to_toml(args.origin));
  return kExitOk;
}

int explain(const Args& args) {
  for (const std::string& name : args.items) {
    const auto text = explain_key(train_schema(), name);
    if (!text.has_value()) return print_error(args, "config explain", text.status());
    print(args.out, str(&name == &args.items.front() ? "" : "\n", *text));
  }
  return kExitOk;
}

int check(const Args& args, const ConfigTree& tree) {
  const auto entries = tree.entries();
  const auto set = std::count_if(entries.begin(), entries.end(),
                                 [](const ConfigEntry& e) { return e.origin != "default"; });
  print(args.out,
        args.json ? problems_as_json(Status::ok())
                  : str("ok: ", set, " of ", entries.size(), " keys set, the others at their defaults\n"));
  return kExitOk;
}

}  // namespace

int run_config(const Args& args) {
  if (args.action == "convert") return run_config_convert(args);
  if (args.action == "explain") return explain(args);
  if (args.action == "schema" || args.action == "reference") {
    print(args.out,
          args.action == "schema" ? config_json_schema(train_schema()) : key_reference(train_schema()));
    return kExitOk;
  }
  const auto loaded = load_config(args);
  if (!loaded.has_value()) {
    if (args.json && args.action == "check") print(args.out, problems_as_json(loaded.status()));
    return print_error(args, str("config ", args.action), loaded.status());
  }
  return args.action == "check" ? check(args, loaded->tree) : show(args, loaded->tree);
}

}  // namespace strata::cli
