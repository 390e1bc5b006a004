#pragma once

#include <strata/engine/batch_source.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>
#include <strata/offload/machine_profile.h>

namespace strata {

/// For runs whose instructions are paced and compute nothing.
class NoTokens final : public BatchSource {
 public:
  Status fill(std::int64_t, const BatchView&) override { return Status::ok(); }
  std::int64_t n_counted(std::int64_t, std::int64_t n) override { return n; }
};

/// The training program in bf16 of one sequence of a decoder with heads of 64; `options` has its sizes.
template <class Options>
Result<Program> record_training(const Options& options) {
  DecoderConfig config;
  config.layers = options.layers;
  config.hidden = options.hidden;
  config.heads = options.hidden / 64;
  config.ffn = 4 * options.hidden;
  config.vocab = options.vocab;
  config.seq = options.seq;
  STRATA_TRY_ASSIGN(const Program forward,
                    record_decoder(config, 1, DecoderHead::loss, DecoderRows::whole, DType::bf16));
  return derive_backward(forward, "loss");
}

/// A machine on which only instructions and the network take time.
inline MachineProfile paced_machine(double network_bytes_per_s, double network_latency_s) {
  MachineProfile p;
  p.name = "paced";
  p.cores = 64;
  p.gemm_sizes = {1};
  p.flops_16bit = p.flops_f32 = {1e18};
  p.attention_flops_per_s = p.device_bytes_per_s = p.host_bytes_per_s = 1e18;
  p.h2d_bytes_per_s = p.d2h_bytes_per_s = p.link_bytes_per_s = 1e18;
  p.update_s_per_param = {1e-15, 1e-15, 1e-15};
  p.network_bytes_per_s = network_bytes_per_s;
  p.network_latency_s = network_latency_s;
  return p;
}

}  // namespace strata
