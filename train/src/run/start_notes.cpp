#include <strata/train/start_notes.h>

#include <cmath>
#include <utility>

#include <strata/config/train_config.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/other_parts.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>

namespace strata {

bool unties_head(const TrainConfig& config, const std::string& config_json) {
  if (!config.model.loaded || config.model.loaded->tied_head) return false;
  const auto said = decoder_from_hf_config(config_json);
  return said.has_value() && said->tied_head;
}

std::vector<std::string> start_notes(const TrainConfig& config) {
  std::vector<std::string> notes;
  if (!config.model.ignored_settings.empty())
    notes.push_back(str("model    ", config.model.ignored_settings,
                        " for training, which strata does not support; the run trains without dropout"));
  if (!config.model.router_aux_by.empty())
    notes.push_back(str("model    ", config.model.router_aux_by,
                        " has output_router_logits = true: the load of ",
                        "experts is balanced with train.router_aux = ", config.train.router_aux,
                        ", its router_aux_loss_coef; train.router_aux=0 leaves this out"));
  if (const std::string path = config.model.from + "/config.json"; config.model.loaded) {
    constexpr std::uint64_t kLimit = std::uint64_t{16} << 20;
    if (const auto text = read_text(posix_io(), path, kLimit); text.has_value() && unties_head(config, *text))
      notes.push_back(str("model    ", path,
                          " ties the head to the token embedding, but the files have both with "
                          "different values: the head is not tied, as in transformers"));
  }
  if (std::string others = left_alone_note(posix_io(), config.model.from); !others.empty())
    notes.push_back("model    " + std::move(others));
  if (config.adapter.dropout > 0 && !has_dropout(config))
    notes.push_back(str("adapter  lora_dropout = ", config.adapter.dropout,
                        " of the adapter that the run begins with is not used: the programs of "
                        "train.objective = ",
                        config.train.objective, " have no dropout"));
  if (const std::int64_t steps = config.train.steps; steps > 0 && config.optim.warmup > steps)
    notes.push_back(str("optim    optim.warmup = ", config.optim.warmup,
                        " is longer than the run of train.steps = ", steps,
                        ": the learning rate rises until the last step"));
  if (const auto& ratio = config.optim.warmup_ratio;
      ratio && config.optim.warmup != std::ceil(*ratio * static_cast<double>(config.train.steps)))
    notes.push_back(str("optim    optim.warmup_ratio = ", *ratio,
                        " is not used: optim.warmup = ", config.optim.warmup, " is given"));
  if (config.optim.lr == 0)
    notes.emplace_back("optim    optim.lr = 0: the steps are computed, and no parameter changes");
  return notes;
}

}  // namespace strata
