#include <strata/serve/serve_metrics.h>

#include <new>
#include <string_view>

#include <fmt/format.h>

#include <strata/runtime/config/json.h>

namespace strata {
namespace {

std::string head(std::string_view name, std::string_view help, std::string_view type) {
  return fmt::format("# HELP strata_serve_{0} {1}\n# TYPE strata_serve_{0} {2}\n", name, help, type);
}
template <class T>
std::string figure(std::string_view name, std::string_view help, std::string_view type, T value) {
  return head(name, help, type) + fmt::format("strata_serve_{} {}\n", name, value);
}

}  // namespace

void ServeMetrics::count(const std::string& endpoint, int status, double seconds) noexcept {
  const MutexLock lock(mutex_);
  try {
    Requests& requests = requests_[{endpoint, status}];
    ++requests.n;
    requests.seconds += seconds;
  } catch (const std::bad_alloc&) {  // it is called at the end of a request, which must not fail for a figure
  }
}

std::string ServeMetrics::text(const GenerationQueue::Load& load, std::size_t places) const {
  std::string counts = head("requests_total", "Requests that have ended, by endpoint and status.", "counter");
  std::string times =
      head("request_seconds_total", "Time of these requests, to the end of their answers.", "counter");
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, requests] : requests_) {
      const std::string labels =
          fmt::format("{{endpoint={},status=\"{}\"}}", json_string(key.first), key.second);
      counts += fmt::format("strata_serve_requests_total{} {}\n", labels, requests.n);
      times += fmt::format("strata_serve_request_seconds_total{} {:.9g}\n", labels, requests.seconds);
    }
  }
  const BatchStats& done = load.done;
  return counts + times +
         figure("queue_length", "Sequences that wait for a place in the batch.", "gauge", load.waiting) +
         figure("active_sequences", "Sequences that are being continued.", "gauge", load.active) +
         figure("places", "Sequences that can be continued at the same time.", "gauge", places) +
         figure("prompt_tokens_total", "Tokens of prompts.", "counter", done.prompt_tokens) +
         figure("generated_tokens_total", "Tokens generated.", "counter", done.tokens) +
         figure("passes_total", "Passes through the model.", "counter", done.passes) +
         head("pass_seconds_total", "Time of passes with tokens of prompts, and of the others.", "counter") +
         fmt::format(
             "strata_serve_pass_seconds_total{{kind=\"prefill\"}} {:.9g}\n"
             "strata_serve_pass_seconds_total{{kind=\"decode\"}} {:.9g}\n",
             done.prefill_seconds, done.decode_seconds);
}

}  // namespace strata
