#include "config/schema/sections.h"

namespace strata {
namespace {

using C = TrainConfig;

constexpr TrainKey kKeys[] = {
    {{.section = "align",
      .name = "loss",
      .type = KeyType::choice,
      .default_text = "sigmoid",
      .doc = "train.objective=dpo: the loss of a pair: of DPO, or of IPO, which bounds how far answers are "
             "driven "
             "apart",
      .choices = "sigmoid|ipo"},
     field<&C::align, &C::Align::loss>},
    {{.section = "align",
      .name = "beta",
      .type = KeyType::number,
      .default_text = "0.1",
      .doc = "train.objective=dpo: how strongly the model is held to the one it starts from",
      .example = "align.beta=0.2",
      .min = 1e-6,
      .max = 1e3},
     field<&C::align, &C::Align::beta>},
    {{.section = "align",
      .name = "label_smoothing",
      .type = KeyType::number,
      .default_text = "0",
      .doc = "train.objective=dpo: the probability that a pair is labelled the wrong way round",
      .example = "align.label_smoothing=0.1",
      .min = 0,
      .max = 0.5},
     field<&C::align, &C::Align::label_smoothing>},
    {{.section = "align",
      .name = "max_pairs",
      .type = KeyType::integer,
      .default_text = "auto",
      .doc = "pairs of a micro-batch at most; auto: one for every 32 tokens",
      .example = "align.max_pairs=8",
      .allows_auto = true,
      .min = 1,
      .max = kMaxCount},
     field<&C::align, &C::Align::max_pairs>},
};

}  // namespace

std::span<const TrainKey> align_keys() noexcept { return kKeys; }

}  // namespace strata
