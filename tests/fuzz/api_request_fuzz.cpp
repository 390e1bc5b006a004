// The body of a request to the HTTP API. What is refused is refused with a message that can be written as
// JSON, and what is read is within its limits.
#include <cmath>

#include <nlohmann/json.hpp>

#include <strata/serve/api_request.h>

#include "fuzz.h"

namespace {

void check_error(const strata::ApiError& error) {
  STRATA_ASSERT(error.http_status == 400 && !error.message.empty(), "refused without a reason");
  STRATA_ASSERT(nlohmann::json::accept(strata::to_json(error)), "an error that is no JSON");
}

void check_options(const strata::AnswerOptions& options) {
  STRATA_ASSERT(options.n >= 1 && options.n <= strata::kMaxAnswers, "answers", options.n);
  STRATA_ASSERT(options.max_tokens.value_or(1) >= 0, "tokens", *options.max_tokens);
  STRATA_ASSERT(std::isfinite(options.sampling.temperature) && options.sampling.temperature >= 0,
                "temperature");
  STRATA_ASSERT(options.sampling.top_p > 0 && options.sampling.top_p <= 1, "top_p");
  for (const strata::LogitBias& each : options.sampling.logit_bias)
    STRATA_ASSERT(each.id >= 0 && std::abs(each.bias) <= strata::kMaxLogitBias, "bias", each.id);
  STRATA_ASSERT(strata::Sampler::create(options.sampling).has_value(), "options that no sampler takes");
  STRATA_ASSERT(options.stop.size() <= strata::kMaxStops, "stops");
  for (const std::string& stop : options.stop) STRATA_ASSERT(!stop.empty(), "an empty stop");
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  if (const auto request = strata::parse_completion_request(input)) {
    check_options(request->options);
    STRATA_ASSERT(!request->prompts.empty(), "no prompt");
  } else {
    check_error(request.error());
  }
  if (const auto request = strata::parse_chat_request(input)) {
    check_options(request->options);
    STRATA_ASSERT(!request->messages.empty(), "no message");
    for (const strata::ChatMessage& message : request->messages)
      STRATA_ASSERT(strata::is_chat_role(message.role), "role");
  } else {
    check_error(request.error());
  }
}
