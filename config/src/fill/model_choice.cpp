#include <strata/config/model_choice.h>

#include <strata/config/train_config.h>
#include <strata/runtime/assert.h>
#include <strata/config/objective.h>

namespace strata {

DecoderConfig decoder_config(const TrainConfig& config) {
  const TrainConfig::Model& m = config.model;
  if (m.loaded) {
    DecoderConfig decoder = *m.loaded;
    decoder.seq = m.seq;
    decoder.scores = objective_of(config).scores;
    return decoder;
  }
  DecoderConfig decoder = decoder_for_family(m.family).value();  // the schema allows known families only
  decoder.layers = m.layers;
  decoder.hidden = m.hidden;
  decoder.heads = m.heads;
  decoder.kv_heads = m.kv_heads.value_or(0);
  decoder.ffn = m.ffn;
  decoder.vocab = m.vocab;
  decoder.seq = m.seq;
  decoder.scores = objective_of(config).scores;
  return decoder;
}

DType compute_dtype(const TrainConfig& config) {
  return config.train.dtype == "bf16" ? DType::bf16 : config.train.dtype == "f16" ? DType::f16 : DType::f32;
}

}  // namespace strata
