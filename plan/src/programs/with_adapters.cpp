#include <strata/config/model_choice.h>
#include <strata/config/frozen_base.h>
#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/plan/record_programs.h>
#include <strata/plan/subspaces.h>

namespace strata {

Result<Program> with_adapters(Program program, const TrainConfig& config, const DecoderConfig& decoder,
                              AdapterUse use) {
  if (trained_part(config) != TrainedPart::adapters)
    return with_subspaces(std::move(program), config, decoder);
  STRATA_TRY_ASSIGN(const AdapterSettings settings, adapter_settings(config));
  for (ParamInfo& param : program.params) param.trainable = false;
  STRATA_TRY_ASSIGN(program, add_adapter(std::move(program), decoder, settings, use));
  const kernels::WeightFormat format = base_format(config);
  if (format == kernels::WeightFormat::full) return program;
  return quantize_weights(std::move(program), format, weight_parts(decoder));
}

}  // namespace strata
