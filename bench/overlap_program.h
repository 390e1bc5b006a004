#pragma once

#include <strata/engine/batch_source.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>

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

}  // namespace strata
