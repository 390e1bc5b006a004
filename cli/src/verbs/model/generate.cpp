#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/text/model_rows.h>
#include <strata/text/prompts.h>
#include <strata/text/utf8_stream.h>
#include <strata/parallel/world.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/infer/generation_source.h>
#include <strata/infer/generator.h>
#include <strata/infer/run_on_ranks.h>

#include "exit_code.h"
#include "print.h"
#include "terminal/token_printer.h"
#include "verbs/model/chat_arguments.h"
#include "verbs/model/generation_sizes.h"
#include "verbs/model/prompt_texts.h"
#include "verbs/model/sampling_options.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::int64_t kDefaultTokens = 128;

/// The state of one invocation of the verb.
struct Work {
  std::vector<Prompt> prompts;
  std::vector<GenerationRequest> requests;  // one per prompt
  std::size_t batch = 1;
  bool streams = false;
  GenerateOptions options;
  std::size_t prompt_tokens = 0, tokens = 0;  // processed so far
};

Result<std::vector<Prompt>> prompts_of(const Args& args, Io& io,
                                       const std::function<void(std::string_view)>& warn) {
  if (!args.prompts_file.empty()) return read_prompts(io, args.prompts_file, warn);
  std::vector<Prompt> prompts;
  for (const std::string& text : args.prompts) prompts.push_back({text, {}});
  return prompts;
}

Result<bool> streams(const Args& args, std::size_t n_prompts) {
  const bool possible = n_prompts == 1 && !args.json;
  if (args.stream && !possible)
    return Status::error(Code::invalid, str("--stream needs exactly one prompt, "
                                            "not ",
                                            n_prompts, ", and without --json"));
  return possible && !args.no_stream;
}

Status encode_all(const GenerationSource& source, Work& work) {
  std::string problems;
  const ChatTemplate chat = source.chat().has_value() ? *source.chat() : ChatTemplate();
  const std::vector<std::int32_t> ends = answer_ends(source.tokenizer(), chat);
  for (const Prompt& prompt : work.prompts) {  // reports all prompts that do not fit at once
    const std::size_t index = work.requests.size();
    if (!prompt.messages.empty() && !source.chat().has_value())
      return source.chat().status().annotate(str("prompt ", index + 1));
    auto tokens = encode_prompt(source.tokenizer(), prompt, chat, ends);
    if (!tokens.has_value()) return tokens.status().annotate(str("prompt ", index + 1));
    const auto adapter = source.choose_adapter(prompt.adapter);
    if (!adapter.has_value())
      problems += str(problems.empty() ? "" : "\n", "prompt ", index + 1, ": ", adapter.status().message());
    for (const std::int32_t id : source.stop_ids()) tokens->stop_ids.push_back(id);
    if (const Status rows = check_token_rows(source.tokenizer(), tokens->ids, source.vocab()); !rows.is_ok())
      problems += str(problems.empty() ? "" : "\n", "prompt ", index + 1, ": ", rows.message());
    const auto n = static_cast<std::int64_t>(tokens->ids.size());
    if (source.max_positions() > 0 && n > source.max_positions())
      problems += str(problems.empty() ? "" : "\n", "prompt ", index + 1, " has ", n,
                      " tokens, but the model supports ", source.max_positions(), " positions: shorten it");
    work.requests.push_back(
        {index, std::move(tokens->ids), std::move(tokens->stop_ids), adapter.value_or(-1)});
  }
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, problems);
}

// The KV cache has room for the longest possible text.
std::int64_t context_of(const Work& work, std::int64_t max_positions) {
  std::size_t longest = 0;
  for (const GenerationRequest& request : work.requests) longest = std::max(longest, request.prompt.size());
  const std::int64_t wanted = static_cast<std::int64_t>(longest) + work.options.max_tokens;
  return max_positions > 0 ? std::min(wanted, max_positions) : wanted;
}

// Depends only on the prompts, not on budgets: the number of rows of a GEMM may select its kernel and thereby
// its rounding.
std::int64_t prefill_rows_of(const Work& work) {
  std::size_t most = work.batch;
  for (std::size_t at = 0; at < work.requests.size(); at += work.batch) {
    std::size_t tokens = 0;
    for (std::size_t i = at; i < std::min(at + work.batch, work.requests.size()); ++i)
      tokens += work.requests[i].prompt.size() + static_cast<std::size_t>(work.options.virtual_tokens);
    most = std::max(most, std::min<std::size_t>(tokens, kPrefillRows));
  }
  return static_cast<std::int64_t>(most);
}

std::string ids_json(const std::vector<std::int32_t>& ids) {
  return fmt::format("[{}]", fmt::join(ids, ", "));
}

std::string prompt_json(const Prompt& prompt) {
  if (prompt.messages.empty()) return str("\"prompt\": ", json_string(prompt.text));
  std::string turns;
  for (const ChatMessage& turn : prompt.messages)
    turns += str(turns.empty() ? "" : ", ", "{\"role\": ", json_string(turn.role),
                 ", \"content\": ", json_string(turn.content), "}");
  return str("\"messages\": [", turns, "]");
}

// Empty if prompts cannot choose.
std::string adapter_json(const GenerationSource& source, std::int32_t adapter) {
  if (source.adapters() == nullptr) return "";
  if (adapter < 0) return ", \"adapter\": null";
  return str(", \"adapter\": ", json_string(std::string(source.adapters()->name(adapter))));
}

Result<std::string> text_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  STRATA_TRY_ASSIGN(const std::string bytes, tokenizer.decode(ids));
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

Status report(const Args& args, const Work& work, const GenerationRequest& request, const Completion& done,
              const GenerationSource& source) {
  const Prompt& prompt = work.prompts[static_cast<std::size_t>(request.index)];
  if (done.finish_reason == FinishReason::context_full)
    print(args.err, str("strata generate: prompt ", request.index + 1, ": stopped after ", done.ids.size(),
                        " tokens because its context of ", work.options.context, " is full\n"));
  if (work.streams) return Status::ok();
  STRATA_TRY_ASSIGN(const std::string text, text_of(source.tokenizer(), done.ids));
  if (args.json)
    print(args.out, str("{\"index\": ", request.index, ", ", prompt_json(prompt),
                        adapter_json(source, request.adapter), ", \"text\": ", json_string(text),
                        ", \"prompt_ids\": ", ids_json(request.prompt), ", \"ids\": ", ids_json(done.ids),
                        ", \"n_prompt_tokens\": ", request.prompt.size(), ", \"n_tokens\": ", done.ids.size(),
                        ", \"finish_reason\": \"", to_string(done.finish_reason), "\"}\n"));
  else
    print(args.out, prompt.text + text + "\n");
  return Status::ok();
}

Status generate_all(const Args& args, const GenerationSource& source, Job& job, const Sampler& sampler,
                    Work& work) {
  Generator generator(job.engine(), sampler, work.options);
  TokenPrinter printer(args.out, source.tokenizer());
  if (work.streams) STRATA_TRY(printer.write(work.prompts.front().text));
  const Generator::OnToken on_token = [&](std::size_t, std::int32_t id) {
    return work.streams ? printer.put(id) : Status::ok();
  };
  for (std::size_t at = 0; at < work.requests.size(); at += work.batch) {
    const auto requests =
        std::span(work.requests).subspan(at, std::min(work.batch, work.requests.size() - at));
    STRATA_TRY_ASSIGN(const std::vector<Completion> done, generator.run(requests, on_token));
    if (work.streams) STRATA_TRY(printer.finish());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      STRATA_TRY(report(args, work, requests[i], done[i], source));
      work.prompt_tokens += requests[i].prompt.size();
      work.tokens += done[i].ids.size();
    }
  }
  const BatchStats& stats = generator.stats();
  print(args.err,
        fmt::format(
            "strata generate: {} prompt tokens in {:.2f} s, {} tokens generated in {:.2f} s: {:.1f} "
            "tokens/s, in {}\n",
            work.prompt_tokens, stats.prefill_seconds, work.tokens, stats.decode_seconds,
            stats.decode_seconds > 0 ? static_cast<double>(stats.decode_tokens) / stats.decode_seconds : 0.0,
            to_string(source.dtype())));
  return Status::ok();
}

/// `world`: of the ranks that share the model, if they are several.
Status generate(const Args& args, World* world);

/// On ranks that are threads. All compute the same tokens, and the first one prints them.
Status generate_on_ranks(const Args& args, int ranks) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere(std::fopen("/dev/null", "w"), &std::fclose);
  if (nowhere == nullptr) return Status::error(Code::io_error, "/dev/null cannot be opened");
  return run_on_ranks(ranks, [&](World& world) {
    Args own = args;
    if (world.rank() > 0) own.out = own.err = nowhere.get();
    return generate(own, &world);
  });
}

Status generate(const Args& given, World* world) {
  Io& io = posix_io();
  Args args = given;
  const std::vector<std::string> texts = take_texts(args.items);  // none on ranks
  const auto warn = [&](std::string_view text) { print(args.err, str("strata generate: ", text, "\n")); };
  STRATA_TRY_ASSIGN(Sampler sampler, Sampler::create(sampling_of(args)));
  Work work;
  STRATA_TRY_ASSIGN(const std::unique_ptr<GenerationSource> source,
                    GenerationSource::open(args, {args.adapters, args.default_adapter}, io, warn));
  STRATA_TRY(set_chat_arguments(args, *source));
  STRATA_TRY_ASSIGN(const int ranks, source->ranks());
  if (world == nullptr) STRATA_TRY(read_prompt_texts(args, texts));
  if (world == nullptr && ranks > 1) return generate_on_ranks(args, ranks);
  STRATA_TRY_ASSIGN(work.prompts, prompts_of(args, io, warn));
  STRATA_TRY_ASSIGN(work.streams, streams(args, work.prompts.size()));
  if (const std::string warning = source->chat_warning(); !warning.empty()) warn(warning);
  work.batch = std::min(static_cast<std::size_t>(args.batch), work.prompts.size());
  work.options.max_tokens = args.tokens.value_or(kDefaultTokens);
  work.options.seed = static_cast<std::uint64_t>(args.seed);
  work.options.virtual_tokens = source->virtual_tokens();
  work.options.vocab = source->tokenizer().vocab_size();
  STRATA_TRY(encode_all(*source, work));
  const std::int64_t context = context_of(work, source->max_positions());
  work.options.context = static_cast<std::int32_t>(context);
  const auto sequences = static_cast<std::int64_t>(work.batch);
  STRATA_TRY_ASSIGN(const std::unique_ptr<Job> job, source->start({sequences, sequences, context, sequences},
                                                                  prefill_rows_of(work), warn, world));
  return generate_all(args, *source, *job, sampler, work);
}

}  // namespace

int run_generate(const Args& args) {
  if (const Status status = generate(args, nullptr); !status.is_ok())
    return print_error(args, "generate", status);
  return kExitOk;
}

}  // namespace strata::cli
