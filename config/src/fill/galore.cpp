#include "fill/galore.h"

#include <strata/config/train_config.h>
#include <strata/runtime/str.h>

#include <strata/config/given_keys.h>

namespace strata::detail {
namespace {

/// Problems with optim.name = galore, as they are found.
class GaloreCheck {
 public:
  GaloreCheck(const ConfigTree& tree, std::vector<std::string>& problems)
      : tree_(tree), problems_(problems) {}
  /// `key` is `value`, which optim.name = galore cannot be combined with.
  template <class T>
  void refuse(std::string_view key, const T& value, std::string_view why) {
    problems_.push_back(str(set_by(tree_, key), " = ", value, ", but optim.name is galore (",
                            tree_.entry("optim.name").origin, "), ", why));
  }

 private:
  const ConfigTree& tree_;
  std::vector<std::string>& problems_;
};

void check_combinations(const TrainConfig& c, GaloreCheck& check) {
  if (c.adapter.method != "none")
    check.refuse("adapter.method", c.adapter.method, "which trains the model itself");
  if (c.train.dtype == "f16")
    check.refuse("train.dtype", c.train.dtype, "which needs gradients without a loss scale; use bf16 or f32");
  if (c.train.fp8) check.refuse("train.fp8", "true", "whose subspaces are of 16- or 32-bit gradients");
  if (c.optim.weight_decay != 0)
    check.refuse(
        "optim.weight_decay", c.optim.weight_decay,
        "which does not decay matrices; set it to 0 (optim.param_groups can decay other parameters)");
  if (c.optim.ema_decay != 0)
    check.refuse("optim.ema_decay", c.optim.ema_decay, "whose matrices change between steps, too");
  if (!c.model.states.empty())
    check.refuse("model.states", c.model.states, "whose moments are not those of whole matrices");
  if (const int ranks = c.parallel.ranks.value_or(1); ranks > 1)
    check.refuse("parallel.ranks", ranks, "which one rank trains with");
  if (c.optim.clip > 0 && c.train.grad_accum > 1 && c.offload.micro_batch_order == "depth_first")
    check.refuse(
        "offload.micro_batch_order", "depth_first",
        str("and optim.clip = ", c.optim.clip, " needs the norm of the whole gradient of ",
            c.train.grad_accum, " micro-batches (train.grad_accum); use breadth_first or optim.clip=0"));
}

}  // namespace

void check_galore(const ConfigTree& tree, const TrainConfig& config, bool trains,
                  std::vector<std::string>& problems) {
  if (config.optim.name == "galore") {
    GaloreCheck check(tree, problems);
    if (trains) check_combinations(config, check);
    return;
  }
  for (const ConfigEntry& entry : tree.entries())
    if (const std::string_view name = entry.spec->name; name.starts_with("galore_") && is_given(tree, entry))
      problems.push_back(str(entry.origin, ": optim.", name, " = ", entry.raw,
                             " is of optim.name = galore, but optim.name is ", config.optim.name, " (",
                             tree.entry("optim.name").origin, ")"));
}

}  // namespace strata::detail
