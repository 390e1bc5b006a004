#include <strata/infer/whole_model.h>

#include <utility>

#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/runtime/str.h>
#include <strata/plan/subspaces.h>
#include <strata/config/frozen_base.h>
#include <strata/config/model_choice.h>

namespace strata {
namespace {

Result<ParamSource> with_adapter_merged(const TrainConfig& config, ParamSource checkpoint,
                                        const DecoderConfig& decoder) {
  STRATA_TRY_ASSIGN(const AdapterSettings settings, adapter_settings(config));
  if (const Status merges = check_can_merge(decoder, settings); !merges.is_ok())
    return Status::error(merges.code(), str("the run trained ", describe(settings), ", but ",
                                            merges.message(), "; its format is peft"));
  STRATA_TRY_ASSIGN(const std::vector<LoraTarget> targets,
                    lora_targets(decoder, std::get<LoraSettings>(folder_settings(settings))));
  STRATA_TRY_ASSIGN(std::vector<TokenTarget> tokens,
                    token_targets(decoder, std::get<LoraSettings>(settings)));
  return with_token_rows(
      merged_source(folder_values(std::move(checkpoint), decoder, settings), lora_groups(targets), decoder),
      std::move(tokens));
}

}  // namespace

Result<ParamSource> whole_model(const TrainConfig& config, ParamSource checkpoint) {
  const DecoderConfig decoder = decoder_config(config);
  ParamSource source = std::move(checkpoint);
  if (trained_part(config) == TrainedPart::adapters) {
    STRATA_TRY_ASSIGN(source, with_adapter_merged(config, std::move(source), decoder));
  }
  STRATA_TRY_ASSIGN(std::vector<LoraGroup> subspaces, subspace_groups(config, decoder));
  return subspaces.empty() ? source : merged_source(std::move(source), std::move(subspaces), decoder);
}

}  // namespace strata
