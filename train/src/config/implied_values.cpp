#include "config/implied_values.h"

#include <strata/runtime/str.h>
#include <strata/train/train_config.h>

namespace strata::detail {
namespace {

struct Implied {
  const char *key, *value;  ///< if the key has this value,
  const char *other, *is;   ///< the other one has this default
};
constexpr Implied kImplied[] = {
    {"optim.name", "galore", "optim.weight_decay", "0"},  // matrices do not decay
    {"parallel.zero", "1", "parallel.reduce", "once"},    // whole gradients are added once a step
};

}  // namespace

Status add_implied_values(ConfigSources& sources, ConfigTree& tree) {
  bool is_any = false;
  for (const Implied& each : kImplied) {
    if (tree.entry(each.key).raw != each.value || tree.entry(each.other).origin != "default") continue;
    sources.discovered.push_back({str(each.key, " = ", each.value), {{each.other, each.is}}});
    is_any = true;
  }
  if (!is_any) return {};
  STRATA_TRY_ASSIGN(tree, ConfigTree::build(train_schema(), sources));
  return {};
}

}  // namespace strata::detail
