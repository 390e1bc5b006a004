// A configuration as TOML, JSON, arguments or environment variables; the first byte selects which.
#include <strata/runtime/config/config.h>

#include "fuzz.h"

namespace {

using strata::KeySpec;
using strata::KeyType;

constexpr KeySpec kKeys[] = {
    {.section = "m", .name = "preset", .type = KeyType::text, .default_text = "", .doc = "d"},
    {.section = "m",
     .name = "n",
     .type = KeyType::integer,
     .default_text = "2",
     .doc = "d",
     .min = 1,
     .max = 1000},
    {.section = "m", .name = "files", .type = KeyType::text_list, .default_text = "", .doc = "d"},
    {.section = "m", .name = "mix", .type = KeyType::number_list, .default_text = "", .doc = "d"},
    {.section = "t",
     .name = "time",
     .type = KeyType::seconds,
     .default_text = "none",
     .doc = "d",
     .unlimited_word = "none"},
    {.section = "t", .name = "trace", .type = KeyType::steps, .default_text = "false", .doc = "d"},
    {.section = "t", .name = "lr", .type = KeyType::number, .default_text = "0.001", .doc = "d", .min = 0},
    {.section = "t",
     .name = "pick",
     .type = KeyType::choice,
     .default_text = "a",
     .doc = "d",
     .choices = "a|b|c"},
    {.section = "t", .name = "bytes", .type = KeyType::bytes, .default_text = "1MiB", .doc = "d"},
    {.section = "t", .name = "on", .type = KeyType::boolean, .default_text = "false", .doc = "d"},
};

}  // namespace

STRATA_FUZZ_TARGET(input) {
  if (input.empty()) return;
  const std::string rest(input.substr(1));
  strata::ConfigSources sources;
  switch (input[0] % 4) {
    case 0:
      sources.file = "f.toml";
      break;
    case 1:
      sources.file = "f.json";
      break;
    case 2:
      sources.arguments = {rest};
      break;
    default:
      sources.environment = {"STRATA_" + rest};
  }
  if (!sources.file.empty()) sources.file_text = rest;
  const auto tree = strata::ConfigTree::build({.keys = kKeys}, sources);
  STRATA_ASSERT(tree.has_value() || !tree.status().message().empty(), "refused without a reason");
}
