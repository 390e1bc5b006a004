#include <strata/infer/generator.h>

#include <memory>
#include <utility>

#include <strata/runtime/str.h>

namespace strata {

/// Collects the tokens of one request.
class Generator::Receiver final : public SequenceReceiver {
 public:
  Receiver(std::size_t request, const Generator::OnToken& on_token)
      : request_(request), on_token_(on_token) {}
  Result<bool> on_token(std::int32_t id, std::span<const float> /*logits*/) override {
    completion.ids.push_back(id);
    if (status = on_token_(request_, id); !status.is_ok()) return status;
    return true;
  }
  void on_end(const Result<FinishReason>& how) override {
    if (how.has_value())
      completion.finish_reason = *how;
    else if (status.is_ok())
      status = how.status();
  }

  Completion completion;
  Status status;

 private:
  const std::size_t request_;
  const Generator::OnToken& on_token_;
};

Generator::Generator(Engine& engine, const Sampler& sampler, const GenerateOptions& options)
    : batcher_(engine, {options.context, options.vocab, options.virtual_tokens}),
      sampling_(sampler.options()),
      options_(options) {}

BatchSequence Generator::sequence_of(const GenerationRequest& request) const {
  return {.prompt = request.prompt,
          .stop_ids = request.stop_ids,
          .adapter = request.adapter,
          .cached = request.cached,
          .keep_at = request.keep_at,
          .max_tokens = options_.max_tokens,
          .sampling = sampling_,
          .seed = options_.seed,
          .index = request.index};
}

Result<std::vector<Completion>> Generator::run(std::span<const GenerationRequest> requests,
                                               const OnToken& on_token) {
  std::vector<std::shared_ptr<Receiver>> receivers;
  for (std::size_t i = 0; i < requests.size(); ++i)
    receivers.push_back(std::make_shared<Receiver>(i, on_token));
  if (const Status status = run_all(requests, receivers); !status.is_ok()) {
    batcher_.end_all(status);
    return status;
  }
  std::vector<Completion> out;
  for (const auto& receiver : receivers) out.push_back(std::move(receiver->completion));
  return out;
}

Status Generator::run_all(std::span<const GenerationRequest> requests,
                          std::span<const std::shared_ptr<Receiver>> receivers) {
  const auto named = [&](std::size_t i, const Status& status) {
    return status.annotate(str("prompt ", requests[i].index + 1));
  };
  for (std::size_t i = 0; i < requests.size(); ++i)
    STRATA_TRY(named(i, batcher_.add(sequence_of(requests[i]), receivers[i])));
  while (batcher_.n_active() > 0) {
    STRATA_TRY(batcher_.step());
    for (std::size_t i = 0; i < receivers.size(); ++i) {
      const Status& status = receivers[i]->status;
      if (!status.is_ok()) return status.code() == Code::diverged ? named(i, status) : status;
    }
  }
  return {};
}

}  // namespace strata
