#include <strata/serve/serve_metrics.h>

#include <algorithm>
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

// The limits of vLLM's histograms (vllm/v1/metrics/loggers.py).
constexpr double kFirstTokenLimits[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                        1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
constexpr double kAnswerLimits[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                    30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
constexpr const char* kEnds[] = {"stop", "length", "abort"};

}  // namespace

void TimeHistogram::add(double seconds) noexcept {
  const auto limit = std::lower_bound(limits_.begin(), limits_.end(), seconds);
  ++counts_[static_cast<std::size_t>(limit - limits_.begin())];
  sum_ += seconds;
}

std::string TimeHistogram::text(std::string_view name, std::string_view label) const {
  std::string out;
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    n += counts_[i];
    const std::string limit = i < limits_.size() ? fmt::format("{}", limits_[i]) : "+Inf";
    out += fmt::format("{}_bucket{{le=\"{}\",{}}} {}\n", name, limit, label, n);
  }
  return out + fmt::format("{0}_sum{{{1}}} {2:.9g}\n{0}_count{{{1}}} {3}\n", name, label, sum_, n);
}

ServeMetrics::ServeMetrics() : first_tokens_(kFirstTokenLimits), answers_(kAnswerLimits) {}

void ServeMetrics::first_token(double seconds) noexcept {
  const MutexLock lock(mutex_);
  first_tokens_.add(seconds);
}

void ServeMetrics::answer_ended(AnswerEnd how, double seconds) noexcept {
  const MutexLock lock(mutex_);
  ++ends_[static_cast<std::size_t>(how)];
  answers_.add(seconds);
}

// What vLLM's dashboards read. A sequence here is a request there.
std::string ServeMetrics::vllm_text(const GenerationQueue::Load& load, std::string_view model) const {
  const std::string label = fmt::format("model_name={}", json_string(model));
  const auto begin = [](std::string_view name, std::string_view help, std::string_view type) {
    return fmt::format("# HELP vllm:{0} {1}\n# TYPE vllm:{0} {2}\n", name, help, type);
  };
  const auto one = [&](std::string_view name, std::string_view help, std::string_view type, auto value) {
    return begin(name, help, type) + fmt::format("vllm:{}{{{}}} {}\n", name, label, value);
  };
  std::string out =
      one("num_requests_running", "Sequences that are being continued.", "gauge", load.active) +
      one("num_requests_waiting", "Sequences that wait for a place in the batch.", "gauge", load.waiting) +
      one("prompt_tokens_total", "Tokens of prompts.", "counter", load.done.prompt_tokens) +
      one("generation_tokens_total", "Tokens generated.", "counter", load.done.tokens) +
      begin("request_success_total", "Answers that have ended, by the reason.", "counter");
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < ends_.size(); ++i)
    out += fmt::format("vllm:request_success_total{{finished_reason=\"{}\",{}}} {}\n", kEnds[i], label,
                       ends_[i]);
  return out +
         begin("time_to_first_token_seconds", "From a request to the first token of an answer.",
               "histogram") +
         first_tokens_.text("vllm:time_to_first_token_seconds", label) +
         begin("e2e_request_latency_seconds", "From a request to the end of an answer.", "histogram") +
         answers_.text("vllm:e2e_request_latency_seconds", label);
}

void ServeMetrics::count(const std::string& endpoint, int status, double seconds) noexcept {
  const MutexLock lock(mutex_);
  try {
    Requests& requests = requests_[{endpoint, status}];
    ++requests.n;
    requests.seconds += seconds;
  } catch (const std::bad_alloc&) {  // it is called at the end of a request, which must not fail for a figure
  }
}

std::string ServeMetrics::text(const GenerationQueue::Load& load, std::size_t places,
                               std::string_view model) const {
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
             done.prefill_seconds, done.decode_seconds) +
         vllm_text(load, model);
}

}  // namespace strata
