#include "config/schema/sections.h"

namespace strata {
namespace {

using C = TrainConfig;

constexpr TrainKey kKeys[] = {
    {{.section = "adapter",
      .name = "method",
      .type = KeyType::choice,
      .default_text = "none",
      .doc = "train adapters of a frozen model instead of the model: low-rank ones of its matrices",
      .choices = "none|lora"},
     field<&C::adapter, &C::Adapter::method>},
    {{.section = "adapter",
      .name = "rank",
      .type = KeyType::integer,
      .default_text = "8",
      .doc = "rank of each adapter",
      .example = "adapter.rank=16",
      .min = 1,
      .max = kMaxDim},
     field<&C::adapter, &C::Adapter::rank>},
    {{.section = "adapter",
      .name = "alpha",
      .type = KeyType::number,
      .default_text = "8",
      .doc = "adapters are scaled by alpha / rank",
      .example = "adapter.alpha=32",
      .min = 1e-6,
      .max = 1e6},
     field<&C::adapter, &C::Adapter::alpha>},
    {{.section = "adapter",
      .name = "rslora",
      .type = KeyType::boolean,
      .default_text = "false",
      .doc = "scale by alpha / sqrt(rank)"},
     field<&C::adapter, &C::Adapter::rslora>},
    {{.section = "adapter",
      .name = "dora",
      .type = KeyType::boolean,
      .default_text = "false",
      .doc = "train the norms of the adapted rows, too (DoRA)"},
     field<&C::adapter, &C::Adapter::dora>},
    {{.section = "adapter",
      .name = "targets",
      .type = KeyType::text_list,
      .default_text = "",
      .doc = "modules with an adapter, by Hugging Face names or their last parts, or all-linear; empty = "
             "queries and "
             "values",
      .example = "adapter.targets=q_proj,v_proj,down_proj"},
     field<&C::adapter, &C::Adapter::targets>},
    {{.section = "adapter",
      .name = "rank_pattern",
      .type = KeyType::text_list,
      .default_text = "",
      .doc = "modules with a rank of their own: NAME=RANK",
      .example = "adapter.rank_pattern=down_proj=32"},
     field<&C::adapter, &C::Adapter::rank_pattern>},
    {{.section = "adapter",
      .name = "alpha_pattern",
      .type = KeyType::text_list,
      .default_text = "",
      .doc = "modules with an alpha of their own: NAME=ALPHA",
      .example = "adapter.alpha_pattern=down_proj=64"},
     field<&C::adapter, &C::Adapter::alpha_pattern>},
    {{.section = "adapter",
      .name = "from",
      .default_text = "",
      .doc = "folder of a PEFT adapter to go on from; it sets the keys of this section",
      .example = "adapter.from=adapters/medical",
      .is_path = true},
     field<&C::adapter, &C::Adapter::from>},
};

}  // namespace

std::span<const TrainKey> adapter_keys() noexcept { return kKeys; }

}  // namespace strata
