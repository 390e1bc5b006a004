#include <strata/serve/service.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <random>
#include <utility>

#include <fmt/format.h>

#include <strata/runtime/plural.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>
#include <strata/serve/api_response.h>

#include "answer/answer_channel.h"
#include "answer/choice_receiver.h"
#include "service/answer_stream.h"
#include "service/request_count.h"

namespace strata {

namespace detail {

/// The part of a request that the batcher needs.
struct Ask {
  bool is_chat = false;
  AnswerOptions options;
  std::vector<ServedPrompt> prompts;
  ServedChoice model;
  std::int64_t max_tokens = 0;
  bool echo = false;
  std::optional<std::size_t> n_top;
};

/// The answers that are on their way.
struct Asked {
  std::shared_ptr<AnswerChannel> channel;
  std::size_t n_answers = 0, prompt_tokens = 0;
};

}  // namespace detail

namespace {

using detail::Ask;
using detail::Asked;
using detail::RequestCount;

// The default of OpenAI's completions; in chats there is no limit.
constexpr std::int64_t kDefaultTokens = 16;
constexpr std::chrono::milliseconds kPatience{100};  // until a stop is noticed while there is no work
constexpr std::string_view kModels = "/v1/models", kModel = "/v1/models/", kCompletions = kPostPaths[0],
                           kChat = kPostPaths[1], kHealth = "/health", kMetrics = "/metrics",
                           kEmbeddings = "/v1/embeddings";

std::int64_t unix_time() {
  using namespace std::chrono;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32U | device();
}

Status stopped_early() { return Status::error(Code::cancelled, "the server is stopping"); }

/// Labels of figures are few, whatever clients ask for.
std::string endpoint_of(std::string_view path) {
  for (const std::string_view known : {kModels, kCompletions, kChat, kHealth, kMetrics})
    if (path == known) return std::string(known);
  return "other";
}

ApiResponse json_response(std::string body) {
  ApiResponse response;
  response.body = std::move(body);
  return response;
}

std::vector<std::string> names_of(const ServedModel& model) {
  std::vector<std::string> names = {model.name};
  names.insert(names.end(), model.adapters.begin(), model.adapters.end());
  return names;
}

BatchSequence sequence_of(const Ask& ask, const ServedPrompt& prompt, std::size_t index, std::uint64_t seed) {
  return {.prompt = prompt.ids,
          .stop_ids = prompt.stop_ids,
          .adapter = ask.model.adapter,
          .cached = 0,
          .max_tokens = ask.max_tokens,
          .sampling = ask.options.sampling,
          .seed = seed,
          .index = index,
          .scores_prompt = ask.echo && ask.n_top.has_value()};
}

detail::ChoiceOptions choice_of(const Ask& ask, const ServedPrompt& prompt, std::size_t index) {
  detail::ChoiceOptions choice{index, ask.options.stop, ask.n_top, !ask.is_chat, ask.echo, {}, {}, false};
  if (!ask.echo) return choice;
  choice.prompt = prompt.text;
  choice.n_unwritten = prompt.n_unwritten;
  choice.prompt_ids = prompt.ids;
  return choice;
}

}  // namespace

Service::Service(ServedModel model, Batcher& batcher, std::size_t max_waiting)
    : model_(std::move(model)),
      places_(batcher.n_places()),
      started_at_(unix_time()),
      random_(random_number()),
      queue_(batcher, max_waiting),
      metrics_(std::make_shared<ServeMetrics>()),
      in_flight_(std::make_shared<std::atomic<std::size_t>>(0)) {}

Service::~Service() = default;

Status Service::run(const Signals& signals, std::optional<std::chrono::seconds> drain_limit) {
  using Time = std::chrono::steady_clock;
  std::optional<Time::time_point> cut_at;
  for (;;) {
    if (signals.stop_requested() && !stopping_.exchange(true)) queue_.close();
    if (stopping_ && drain_limit) {
      if (!cut_at) cut_at = Time::now() + *drain_limit;
      if (Time::now() >= *cut_at) n_cut_ += queue_.end_active(stopped_early());
    }
    const Result<bool> has_work = queue_.turn(kPatience);
    if (!has_work.has_value()) {
      stopping_ = true;
      return has_work.status();
    }
    if (!stopping_ || *has_work) continue;
    const MutexLock lock(mutex_);
    return why_;
  }
}

void Service::give_up(const Status& why) {
  {
    const MutexLock lock(mutex_);
    why_ = why;
  }
  queue_.close();  // first: run() may end once it knows
  stopping_ = true;
}

ApiResponse Service::handle(const ApiCall& call) {
  const auto count = std::make_shared<RequestCount>(metrics_, in_flight_, endpoint_of(call.path));
  ApiResponse response;
  try {
    response = dispatch(call, count);
  } catch (const std::bad_alloc&) {
    response = response_of({503, "there is not enough memory for this request", {}, "out_of_memory"});
  } catch (const std::exception& e) {
    response = response_of({500, e.what(), {}, "internal"});
  }
  count->status = response.status;
  return response;
}

ApiResponse Service::refuse(const ApiError& error, std::string_view path) {
  RequestCount count(metrics_, in_flight_, endpoint_of(path));
  count.status = error.http_status;
  return response_of(error);
}

ApiResponse Service::dispatch(const ApiCall& call, const std::shared_ptr<RequestCount>& count) {
  const bool is_post = call.path == kCompletions || call.path == kChat;
  const bool is_get =
      call.path == kHealth || call.path == kMetrics || call.path == kModels || call.path.starts_with(kModel);
  if (call.path == kEmbeddings)
    return response_of({404,
                        str("the model '", model_.name,
                            "' writes text: this server makes no embeddings, so there is no ", kEmbeddings),
                        {},
                        "unsupported_endpoint"});
  if (!is_post && !is_get)
    return response_of({404, str("there is no ", call.path.substr(0, 80), " here"), {}, "unknown_url"});
  if (call.method != (is_post ? "POST" : "GET"))
    return response_of({405, str(call.path.substr(0, 80), " needs ", is_post ? "POST" : "GET"), {}, {}});
  if (is_get) return get(call.path);
  if (stopping_) return response_of(stopping_error());
  return call.path == kChat ? chat(call, count) : complete(call, count);
}

ApiResponse Service::get(std::string_view path) {
  if (path == kHealth)
    return stopping_ ? response_of(stopping_error()) : json_response("{\"status\": \"ok\"}");
  if (path == kMetrics) {
    ApiResponse response = json_response(metrics_->text(queue_.load(), places_, model_.name));
    response.content_type = "text/plain; version=0.0.4";
    return response;
  }
  if (path == kModels) return json_response(models_json(names_of(model_), started_at_));
  const std::string name(path.substr(kModel.size()));
  const auto chosen = choose_model(model_, name);
  return chosen.has_value() ? json_response(model_json(name, started_at_)) : response_of(chosen.error());
}

ApiResponse Service::complete(const ApiCall& call, const std::shared_ptr<RequestCount>& count) {
  auto request = parse_completion_request(call.body);
  if (!request.has_value()) return response_of(request.error());
  Ask ask{.is_chat = false,
          .options = std::move(request->options),
          .prompts = {},
          .model = {},
          .max_tokens = 0,
          .echo = request->echo,
          .n_top = {}};
  ask.max_tokens = ask.options.max_tokens.value_or(kDefaultTokens);
  if (request->logprobs) ask.n_top = static_cast<std::size_t>(*request->logprobs);
  if (const auto error = check_count(request->prompts.size() * static_cast<std::size_t>(ask.options.n)))
    return response_of(*error);
  for (const PromptInput& input : request->prompts) {
    auto prompt = encode_input(model_, input);
    if (!prompt.has_value()) return response_of(prompt.error());
    ask.prompts.push_back(*std::move(prompt));
  }
  return answer(std::move(ask), call, count);
}

ApiResponse Service::chat(const ApiCall& call, const std::shared_ptr<RequestCount>& count) {
  auto request = parse_chat_request(call.body);
  if (!request.has_value()) return response_of(request.error());
  auto prompt = encode_messages(model_, request->messages, request->template_arguments);
  if (!prompt.has_value()) return response_of(prompt.error());
  Ask ask{.is_chat = true,
          .options = std::move(request->options),
          .prompts = {*std::move(prompt)},
          .model = {},
          .max_tokens = 0,
          .echo = false,
          .n_top = {}};
  ask.max_tokens = ask.options.max_tokens.value_or(model_.context);
  if (request->logprobs) ask.n_top = static_cast<std::size_t>(*request->logprobs);
  if (const auto error = check_count(static_cast<std::size_t>(ask.options.n))) return response_of(*error);
  return answer(std::move(ask), call, count);
}

ApiResponse Service::answer(Ask ask, const ApiCall& call, const std::shared_ptr<RequestCount>& count) {
  const auto chosen = choose_model(model_, ask.options.model);
  if (!chosen.has_value()) return response_of(chosen.error());
  ask.model = *chosen;
  if (auto error = check_bias(model_, ask.options.sampling.logit_bias)) return response_of(*error);
  const auto asked = ask_batcher(ask);
  if (!asked.has_value()) return response_of(asked.error());
  auto reader = std::make_unique<detail::AnswerReader>(asked->channel, asked->n_answers, asked->prompt_tokens,
                                                       call.client);
  ResponseWriter writer({.is_chat = ask.is_chat,
                         .id = fmt::format("{}-{:016x}", ask.is_chat ? "chatcmpl" : "cmpl", draw()),
                         .created = unix_time(),
                         .model = ask.model.name,
                         .with_scores = ask.n_top.has_value(),
                         .n_top = ask.n_top.value_or(0)},
                        model_.tokenizer);
  if (!ask.options.stream) return detail::whole_response(std::move(reader), std::move(writer), count);
  return detail::streamed_response(std::move(reader), std::move(writer), ask.options.include_usage, count);
}

std::optional<ApiError> Service::check_count(std::size_t n_answers) const {
  if (n_answers <= queue_.capacity()) return std::nullopt;
  return ApiError{400,
                  str("the request asks for ", plural(n_answers, "answer"), "; this server takes at most ",
                      queue_.capacity(), " at once"),
                  "prompt", "too_many_answers"};
}

// Each answer has the random numbers of the prompt with its index in `strata generate`.
ApiResult<Asked> Service::ask_batcher(const Ask& ask) {
  const auto n = static_cast<std::size_t>(ask.options.n);
  Asked asked{std::make_shared<detail::AnswerChannel>(), n * ask.prompts.size(), 0};
  const std::uint64_t seed = ask.options.seed.value_or(draw());
  std::vector<GenerationQueue::Entry> entries;
  for (const ServedPrompt& prompt : ask.prompts) {
    asked.prompt_tokens += prompt.ids.size();
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t index = entries.size();
      entries.push_back({sequence_of(ask, prompt, index, seed),
                         std::make_shared<detail::ChoiceReceiver>(
                             choice_of(ask, prompt, index), model_.tokenizer, asked.channel, metrics_)});
      if (ask.options.json_object) entries.back().sequence.constraint = json_object();
    }
  }
  switch (queue_.submit(std::move(entries))) {
    case GenerationQueue::Admission::accepted:
      return asked;
    case GenerationQueue::Admission::full:
      return tl::make_unexpected(
          ApiError{429, "too many requests wait already; try again later", {}, "queue_full"});
    case GenerationQueue::Admission::closed:
      break;
  }
  return tl::make_unexpected(stopping_error());
}

// Sorting a vocabulary takes a moment, which servers that nobody asks for JSON do without.
std::shared_ptr<TokenConstraint> Service::json_object() {
  std::call_once(sorts_once_, [this] { sorted_tokens_ = std::make_shared<SortedTokens>(model_.tokenizer); });
  return std::make_shared<JsonObjectConstraint>(sorted_tokens_, model_.tokenizer);
}

std::uint64_t Service::draw() noexcept { return Rng(random_, 0).u64(n_draws_.fetch_add(1)); }

}  // namespace strata
