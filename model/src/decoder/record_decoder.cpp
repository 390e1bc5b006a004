#include <strata/model/decoder.h>

#include <algorithm>
#include <utility>

#include <strata/kernels/recurrent/delta_rule.h>
#include <strata/kernels/recurrent/state_scan.h>
#include <strata/runtime/str.h>

#include "decoder/recorder.h"

namespace strata {

using detail::Recorder;

std::vector<std::string> choice_biases(const DecoderConfig& config) {
  std::vector<std::string> names;
  const ExpertsConfig experts = with_derived_sizes(config).experts;
  if (experts.n == 0 || !experts.choice_bias) return names;
  for (std::size_t layer = 0; layer < experts.layers.size(); ++layer)
    if (experts.layers[layer]) names.push_back(detail::choice_bias_name(detail::layer_name(layer)));
  return names;
}

std::int64_t count_parameters(const DecoderConfig& config) {
  const auto program = record_decoder(config, 1, DecoderHead::logits);
  std::int64_t n = 0;
  if (program.has_value())
    for (const ParamInfo& param : program->params) n += param.shape.n_elems();
  return n;
}

namespace {

Status check_batch(const DecoderConfig& config, std::int64_t batch) {
  STRATA_TRY(validate(config));
  if (batch >= 1) return {};
  return Status::error(Code::invalid, str("a batch of ", batch, " sequences; it must be at least 1"));
}

Status check_router_losses(const DecoderConfig& config, DecoderHead head, const RouterLosses& routers) {
  if (!routers.any()) return {};
  const std::string asked =
      str("losses of routers by coefficients of ", routers.aux_coef, " and ", routers.z_coef);
  if (head != DecoderHead::loss)
    return Status::error(Code::invalid, str(asked, " of a program without loss"));
  if (has_softmax_routers(config)) return {};
  return Status::error(Code::invalid, str(asked, ", but ", config.family, " has no routers with a softmax"));
}

}  // namespace

Result<Program> record_decoder(const DecoderConfig& config, std::int64_t batch, DecoderHead head,
                               DecoderRows rows, DType compute, const RouterLosses& routers) {
  STRATA_TRY(check_batch(config, batch));
  const DecoderConfig whole = with_derived_sizes(config);
  STRATA_TRY(check_router_losses(whole, head, routers));
  return Recorder(whole, batch * whole.seq, compute).run(head, rows, routers);
}

Result<Program> record_decoder_with(const DecoderConfig& config, std::int64_t batch, DecoderRows rows,
                                    DType compute, const RecordDecoderEnd& end) {
  STRATA_TRY(check_batch(config, batch));
  const DecoderConfig whole = with_derived_sizes(config);
  return Recorder(whole, batch * whole.seq, compute).run_with(rows, end);
}

std::uint64_t cache_bytes(const DecoderConfig& config, const CacheShape& shape, DType compute) {
  const DecoderConfig c = with_derived_sizes(config);
  const DeltaConfig& d = c.delta;
  std::int64_t token_elems = 0, elems = 0, f32_elems = 0;  // a token, and the states of a sequence
  const auto add_mamba = [&] {
    const kernels::ScanHeads heads = detail::scan_heads(c.mamba, 0);
    elems += (c.mamba.taps - 1) * c.mamba.channels();
    f32_elems += heads.blocks() * kernels::scan_state_elems(heads);
  };
  for (std::size_t layer = 0; layer < c.mixers.size(); ++layer) switch (c.mixers[layer]) {
      case Mixer::none:
        break;
      case Mixer::mamba:
        add_mamba();
        break;
      case Mixer::both:
        add_mamba();
        [[fallthrough]];
      case Mixer::latent:
        if (shape.latent) {
          token_elems += c.latent.kv_rank + c.latent.rotated;
          break;
        }
        [[fallthrough]];
      case Mixer::attention:
        token_elems += 2 * layer_heads(c, layer).kv_width();
        break;
      case Mixer::delta:
        elems += (d.taps - 1) * d.channels();
        f32_elems += d.key_heads * kernels::delta_state_elems(detail::delta_heads(d, 0));
        break;
      case Mixer::short_conv:
        elems += (c.conv_taps - 1) * c.hidden;
        break;
    }
  const std::uint64_t states = static_cast<std::uint64_t>(elems) * size_of(compute) +
                               static_cast<std::uint64_t>(f32_elems) * sizeof(float);
  return static_cast<std::uint64_t>(shape.sequences) *
         (static_cast<std::uint64_t>(shape.context * token_elems) * size_of(compute) +
          static_cast<std::uint64_t>(1 + shape.snapshots) * states);
}

Result<Program> record_cached_decoder(const DecoderConfig& config, const CacheShape& shape, DType compute) {
  DecoderConfig c = with_derived_sizes(config);  // before setting seq, so that a learned table keeps its size
  c.seq = shape.context;
  c = with_derived_sizes(std::move(c));  // a model without a limit gets that of the context
  STRATA_TRY(validate(c));
  if (shape.rows < 1 || shape.sequences < 1 || shape.logit_rows < 1)
    return Status::error(
        Code::invalid, str("a cached program of ", shape.rows, " rows, ", shape.sequences, " sequences and ",
                           shape.logit_rows, " rows of logits; each must be at least 1"));
  return Recorder(std::move(c), shape.rows, compute).run_cached(shape);
}

}  // namespace strata
