#include <strata/graph/passes.h>
#include <strata/config/objectives.h>

#include "schema/sections.h"

namespace strata {
namespace {

using C = TrainConfig;

std::string objective_names() {
  std::string names;
  for (const Objective& objective : all_objectives()) names += str(names.empty() ? "" : "|", objective.name);
  return names;
}
std::string recompute_names() { return joined_names(kRecomputeModes); }

// The masters are the parameters if the dtype is f32.
bool may_have_frozen_masters(const C& c) {
  return (freezes(c) || trained_part(c) == TrainedPart::subspaces) && c.train.dtype != "f32";
}

constexpr TrainKey kTrainingKeys[] = {
    {{.section = "train",
      .name = "objective",
      .type = KeyType::choice,
      .default_text = "lm",
      .doc = "what is learned: the next token (lm), a score that prefers the chosen answers of pairs "
             "(reward), to answer as they do (dpo), or to give answers that are rewarded (ppo, grpo)"},
     field<&C::train, &C::Train::objective>,
     {.identity = kIdentity.formerly("lm"), .choices = objective_names}},
    {{.section = "train",
      .name = "steps",
      .type = KeyType::integer,
      .default_text = "auto",
      .doc = "optimizer steps; auto: those of train.epochs, else 1000",
      .example = "train.steps=1500",
      .allows_auto = true,
      .min = 0,
      .max = kMaxSteps},
     field_if_known<&C::train, &C::Train::steps>,
     {.identity = kIdentity}},
    {{.section = "train",
      .name = "epochs",
      .type = KeyType::number,
      .default_text = "auto",
      .doc = "passes over data.train; auto: 3 from a folder where no steps are given",
      .example = "train.epochs=3",
      .allows_auto = true,
      .min = 1e-6,
      .max = 1e6},
     field<&C::train, &C::Train::epochs>,
     {.identity = kInOtherEntries}},
    {{.section = "train",
      .name = "micro_batch",
      .type = KeyType::integer,
      .default_text = "4",
      .doc = "sequences per micro-batch",
      .example = "train.micro_batch=8",
      .min = 1,
      .max = kMaxCount},
     field<&C::train, &C::Train::micro_batch>,
     {.identity = kIdentity}},
    {{.section = "train",
      .name = "grad_accum",
      .type = KeyType::integer,
      .default_text = "1",
      .doc = "micro-batches per step; of ppo and grpo as many as section align needs",
      .example = "train.grad_accum=2",
      .min = 1,
      .max = kMaxCount},
     field<&C::train, &C::Train::grad_accum>,
     {.identity = kIdentity}},
    {{.section = "train",
      .name = "allow_micro_batch_split",
      .type = KeyType::boolean,
      .default_text = "false",
      .doc =
          "if the run does not fit, halve micro-batches and double their number; changes the order of sums"},
     field<&C::train, &C::Train::allow_micro_batch_split>,
     {.identity = kInOtherEntries}},
    {{.section = "train",
      .name = "max_time",
      .type = KeyType::seconds,
      .default_text = "none",
      .doc = "stop after this time; the run can be resumed",
      .example = "train.max_time=90s",
      .unlimited_word = "none",
      .min = 0},
     field<&C::train, &C::Train::max_time_s>,
     {.identity = kNoBits}},
    {{.section = "train",
      .name = "seed",
      .type = KeyType::integer,
      .default_text = "1",
      .doc = "seed of initial values and data order",
      .example = "train.seed=7",
      .min = 0,
      .max = 9007199254740992.0},
     field<&C::train, &C::Train::seed>,
     {.identity = kIdentity}},
    {{.section = "train",
      .name = "digest",
      .type = KeyType::boolean,
      .default_text = "true",
      .doc = "whether the end of a run computes the digest of all states (state_digest of summary.json), for "
             "which it reads them once"},
     field<&C::train, &C::Train::digest>,
     {.identity = kNoBits}},
    {{.section = "train",
      .name = "dtype",
      .type = KeyType::choice,
      .default_text = "auto",
      .doc = "dtype of parameters and activations; master weights are f32",
      .allows_auto = true,
      .choices = "bf16|f16|f32"},
     field<&C::train, &C::Train::dtype>,
     {.identity = kIdentity}},
    {{.section = "train",
      .name = "fp8",
      .type = KeyType::boolean,
      .default_text = "false",
      .doc = "FP8 GEMMs in transformer blocks: e4m3, and e5m2 for gradients"},
     field<&C::train, &C::Train::fp8>,
     {.identity = kIdentity.formerly("false")}},
    {{.section = "train",
      .name = "base",
      .type = KeyType::choice,
      .default_text = "auto",
      .doc = "matrices of a base under adapters: in train.dtype (full), or in 8 or 4 bits a value (dq: with "
             "8-bit scales, as in QLoRA); auto = as in the folder model.from",
      .allows_auto = true,
      .choices = "full|int8|nf4|nf4-dq|mxfp4|fp8|int4"},
     field<&C::train, &C::Train::base>,
     {.identity = kIdentity.formerly("full")}},
    {{.section = "train",
      .name = "attention_backend",
      .type = KeyType::text,
      .default_text = "auto",
      .doc = "attention kernels on a GPU: mma, wgmma (compute capability 9.0 only) or cudnn, or several in "
             "order of "
             "preference, of which each layer takes the first that supports it, and another order of the "
             "backward "
             "after a slash; auto = the fastest first",
      .example = "train.attention_backend=cudnn,wgmma,mma",
      .allows_auto = true},
     field<&C::train, &C::Train::attention_backend>,
     {.identity = kIdentity.formerly("mma")}},
    {{.section = "train",
      .name = "recompute",
      .type = KeyType::choice,
      .default_text = "auto",
      .doc = "activations that backward recomputes",
      .allows_auto = true},
     field<&C::train, &C::Train::recompute>,
     {.identity = kNoBits, .planned = true, .choices = recompute_names}},
    {{.section = "train",
      .name = "freeze",
      .type = KeyType::text_list,
      .default_text = "",
      .doc = "name patterns (* ? [a-c]) of parameters that are not trained",
      .example = "train.freeze=tokens.weight,layers.[0-2].*"},
     field<&C::train, &C::Train::freeze>,
     {.identity = kIdentity.formerly("")}},
    {{.section = "train",
      .name = "frozen_masters",
      .type = KeyType::boolean,
      .default_text = "auto",
      .doc = "keep f32 masters of frozen parameters, not only their values in train.dtype",
      .example = "train.frozen_masters=false",
      .allows_auto = true},
     field<&C::train, &C::Train::frozen_masters>,
     {.identity = kIdentity.when(may_have_frozen_masters).as([](const C& c) {
       return str(c.train.frozen_masters.value_or(true));
     })}},
    {{.section = "train",
      .name = "eval_every",
      .type = KeyType::integer,
      .default_text = "100",
      .doc = "steps between validations; 0 = never",
      .example = "train.eval_every=100",
      .min = 0,
      .max = kMaxSteps},
     field<&C::train, &C::Train::eval_every>,
     {.identity = kNoBits}},
    {{.section = "train",
      .name = "eval_batches",
      .type = KeyType::integer,
      .default_text = "8",
      .doc = "micro-batches per validation",
      .example = "train.eval_batches=8",
      .min = 1,
      .max = kMaxCount},
     field<&C::train, &C::Train::eval_batches>,
     {.identity = kNoBits}},
};

}  // namespace

std::span<const TrainKey> training_keys() noexcept { return kTrainingKeys; }

}  // namespace strata
