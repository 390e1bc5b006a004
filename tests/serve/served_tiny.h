#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <strata/text/prompts.h>
#include <strata/text/utf8_stream.h>
#include <strata/runtime/signals.h>
#include <strata/serve/service.h>

#include "infer/cached_model.h"

namespace strata::test {

/// The 256 bytes, some merges, and an end of text.
inline Tokenizer small_tokenizer() {
  const std::string_view text = "the cat sat on the mat and the other cat sat on that mat";
  return must(Tokenizer::train(std::span(&text, 1), 280));
}

/// A tiny model with random weights behind a service, whose batcher a thread drives.
class ServedTiny {
 public:
  struct Options {
    std::int64_t places = 2;
    std::size_t max_waiting = 4;
    std::int32_t context = 48;
    bool runs = true;  ///< the thread is there from the beginning
    std::string family = "llama";
  };
  ServedTiny() : ServedTiny(Options{}) {}
  explicit ServedTiny(const Options& options)
      : config_(config(options.family)),
        model_(config_, {options.places, 16, options.context, 6}),
        batcher_(*model_.run.engine, {options.context, tokenizer_.vocab_size()}),
        service(served(options.context), batcher_, options.max_waiting) {
    if (options.runs) start();
  }
  ~ServedTiny() { stop(); }
  ServedTiny(const ServedTiny&) = delete;
  ServedTiny& operator=(const ServedTiny&) = delete;

  void start() {
    thread_ = std::jthread([this] { outcome = service.run(signals); });
  }
  /// Waits until the batch has ended.
  void stop() {
    signals.request_stop(15);
    join();
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  ApiResponse post(std::string_view path, const std::string& body) {
    return service.handle({"POST", path, body});
  }
  ApiResponse get(std::string_view path) { return service.handle({"GET", path, {}}); }

  /// The text that the generator makes of a prompt, by another engine with one place.
  std::string generated(const Prompt& prompt, std::int64_t n, const SamplingOptions& sampling,
                        std::uint64_t seed) const {
    CachedModel alone(config_, {1, 16, 48});
    const PromptTokens tokens = must(encode_prompt(tokenizer_, prompt, ChatTemplate{}, {}));
    GenerationRequest request{.index = 0, .prompt = tokens.ids, .stop_ids = {tokenizer_.markers().end}};
    Generator generator(*alone.run.engine, must(Sampler::create(sampling)),
                        {.max_tokens = n, .context = 48, .vocab = tokenizer_.vocab_size(), .seed = seed});
    const auto done =
        must(generator.run(std::span(&request, 1), [](std::size_t, std::int32_t) { return Status::ok(); }));
    Utf8Stream utf8;
    std::string text = utf8.push(must(tokenizer_.decode(done[0].ids)));
    return text + utf8.finish();
  }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  static DecoderConfig config(const std::string& family) {
    DecoderConfig made = tiny_of_family(family);
    made.vocab = 288;  // more rows than tokens
    made.seq = 48;
    return made;
  }
  ServedModel served(std::int32_t context) const {
    return {.name = "tiny",
            .adapters = {},
            .tokenizer = tokenizer_,
            .chat = ChatTemplate{},
            .stop_ids = {tokenizer_.markers().end},
            .context = context,
            .choose_adapter = [](const std::optional<std::string>&) -> Result<std::int32_t> { return -1; }};
  }

  const Tokenizer tokenizer_ = small_tokenizer();
  const DecoderConfig config_;
  CachedModel model_;
  Batcher batcher_;

 public:
  ManualSignals signals;
  Service service;
  Status outcome;

 private:
  std::jthread thread_;
};

}  // namespace strata::test
