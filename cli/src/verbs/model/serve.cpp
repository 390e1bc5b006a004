#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>

#include <fmt/format.h>

#include <strata/runtime/figure_text.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/signals.h>
#include <strata/runtime/str.h>
#include <strata/runtime/terminal_text.h>
#include <strata/runtime/units.h>
#include <strata/serve/http_server.h>
#include <strata/serve/local_host.h>
#include <strata/serve/service.h>
#include <strata/infer/batcher.h>
#include <strata/infer/generation_source.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/model/chat_arguments.h"
#include "verbs/model/generation_sizes.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::int64_t kPrefillLogits = 64;  // so many tokens of a pass may be scored for an echo
constexpr std::uint64_t kMaxBodyBytes = kGiB;
constexpr std::size_t kMaxKeyFileBytes = 1 << 20, kMinKeyBytes = 8;
constexpr std::size_t kSpareConnections = 16;  // for those that are refused, and for figures

Result<std::int64_t> context_of(const Args& args, const GenerationSource& source) {
  const std::int64_t most = source.max_positions();
  if (args.context > 0 && most > 0 && args.context > most)
    return Status::error(Code::invalid,
                         str("--context ", args.context, ": the model supports ", most, " positions"));
  const std::int64_t wanted = args.context > 0 ? args.context : kUsualContext;
  return most > 0 ? std::min(most, wanted) : wanted;
}

/// The lines of the file, whose keys are what clients send after "Bearer".
Result<std::vector<std::string>> read_keys(const std::string& path) {
  STRATA_TRY_ASSIGN(const std::string text, read_text(posix_io(), path, kMaxKeyFileBytes));
  std::vector<std::string> keys;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string key = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (key.ends_with('\r')) key.pop_back();
    if (key.empty()) continue;
    if (key.size() < kMinKeyBytes ||
        !std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < '\x7f'; }))
      return Status::error(
          Code::invalid, str(path, ": line ", line_number, " has ", key.size(), " bytes; a key has at least ",
                             kMinKeyBytes, " printable characters of ASCII and no spaces"));
    keys.push_back(std::move(key));
  }
  if (keys.empty()) return Status::error(Code::invalid, str(path, " has no key; write one on a line"));
  return keys;
}

HttpServer::Options http_options(const Args& args, std::size_t max_body_bytes) {
  HttpServer::Options options{.host = args.host, .port = args.port, .max_body_bytes = max_body_bytes};
  options.max_connections =
      static_cast<std::size_t>(args.batch) + static_cast<std::size_t>(args.queue) + kSpareConnections;
  options.max_per_address = static_cast<std::size_t>(args.connections_per_address);
  options.allowed_hosts = args.allowed_hosts;
  options.allowed_origins = args.allowed_origins;
  return options;
}

std::string url(const Args& args, int port) {
  const bool is_ipv6 = args.host.find(':') != std::string::npos;
  return str("http://", is_ipv6 ? "[" : "", args.host, is_ipv6 ? "]" : "", ":", port);
}

void print_begin(const Args& args, const Service& service, const GenerationSource& source, int port) {
  const ServedModel& model = service.model();
  std::string adapters;
  for (const std::string& name : model.adapters) adapters += str(adapters.empty() ? " with " : ", ", name);
  print(args.out, str("strata serve: ", model.name, adapters, " at ", url(args, port), "/v1, ",
                      plural(args.batch, "sequence"), " of ", model.context, " tokens at a time, in ",
                      to_string(source.dtype()), "\n"));
  (void)std::fflush(args.out);
}

void print_end(const Args& args, const BatchStats& done) {
  const double seconds = done.prefill_seconds + done.decode_seconds;
  print(args.err,
        fmt::format("strata serve: stopped; {} prompt tokens and {} generated in {} passes of {:.2f} s\n",
                    done.prompt_tokens, done.tokens, done.passes, seconds));
}

// Monitors send these requests every few seconds.
bool is_probe(const HttpServer::AccessLine& line) {
  return line.status == 200 && (line.target == "/health" || line.target == "/metrics");
}

void print_access(const Args& args, const HttpServer::AccessLine& line) {
  constexpr std::size_t kMaxTarget = 200;
  if (is_probe(line)) return;
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  std::array<char, 32> when{};
  (void)std::strftime(when.data(), when.size(), "%Y-%m-%d %H:%M:%S", localtime_r(&now, &day));
  // Nothing is known of what is no request.
  const auto shown = [](std::string_view text) {
    return text.empty() ? "-" : terminal_text(text.substr(0, kMaxTarget));
  };
  print(args.err, fmt::format("{} {} {} {} {} {}\n", when.data(), shown(line.address), shown(line.method),
                              shown(line.target), line.status, Figure(line.seconds, "s").view()));
}

Status serve(const Args& args) {
  const auto warn = [&](std::string_view text) { print(args.err, str("strata serve: ", text, "\n")); };
  const auto max_body = parse_bytes(args.max_body);
  if (!max_body.has_value()) return max_body.status().annotate("--max-body");
  if (*max_body > kMaxBodyBytes)
    return Status::error(Code::invalid, str("--max-body ", args.max_body, ": at most 1GiB is supported"));
  HttpServer::Options http = http_options(args, *max_body);
  if (!args.api_key_file.empty()) {
    STRATA_TRY_ASSIGN(http.api_keys, read_keys(args.api_key_file));
  }
  STRATA_TRY(HttpServer::check(http));
  STRATA_TRY_ASSIGN(const std::unique_ptr<GenerationSource> source,
                    GenerationSource::open(args, {args.adapters, args.default_adapter}, posix_io(), warn));
  STRATA_TRY(set_chat_arguments(args, *source));
  STRATA_TRY_ASSIGN(const int ranks, source->ranks());
  if (ranks > 1)
    return Status::error(Code::unsupported, str("parallel.tp = ", ranks, ": strata serve runs on one rank"));
  if (const std::string warning = source->chat_warning(); !warning.empty()) warn(warning);
  if (!is_this_machine(args.host) && http.api_keys.empty())
    warn(str("everyone who can reach ", args.host,
             " can use the model: there is no key; --api-key-file FILE asks for one"));
  if (http.api_keys.empty() &&
      std::find(args.allowed_origins.begin(), args.allowed_origins.end(), "*") != args.allowed_origins.end())
    warn("--allow-origin *: every web page that this machine opens can use the model, since there is no key");
  STRATA_TRY_ASSIGN(const std::int64_t context, context_of(args, *source));
  const std::string name = args.name.empty() ? model_name_of(args.items.front()) : args.name;
  STRATA_TRY_ASSIGN(ServedModel model, served_model(*source, name, static_cast<std::int32_t>(context)));
  if (args.plain_prompts) model.in_prompts = SpecialTokens::as_text;
  STRATA_TRY_ASSIGN(const std::unique_ptr<Signals> signals, install_signals());
  signals->set_answer("\nstrata serve: ending the answers that have begun; press again to stop immediately");
  if (!args.quiet)
    http.on_request = [&args](const HttpServer::AccessLine& line) { print_access(args, line); };
  const std::int64_t places = args.batch;
  STRATA_TRY_ASSIGN(const std::unique_ptr<Job> job,
                    source->start({places, places, context, places}, std::max(kPrefillRows, 2 * places), warn,
                                  nullptr, std::max(kPrefillLogits, places)));
  Batcher batcher(job->engine(), {static_cast<std::int32_t>(context), source->tokenizer().vocab_size(),
                                  source->virtual_tokens()});
  Service service(std::move(model), batcher, static_cast<std::size_t>(args.queue));
  STRATA_TRY_ASSIGN(const std::unique_ptr<HttpServer> server, HttpServer::start(service, http));
  print_begin(args, service, *source, server->port());
  Status status = service.run(*signals, std::chrono::seconds(args.drain_seconds));
  server->stop();
  if (const std::size_t n = service.n_cut(); n > 0)
    warn(str(plural(n, "answer"), n == 1 ? " was" : " were", " cut after ", args.drain_seconds,
             " s; --drain-seconds N waits longer"));
  print_end(args, batcher.stats());
  return status;
}

}  // namespace

int run_serve(const Args& args) {
  const Status status = serve(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, "serve", status);
}

}  // namespace strata::cli
