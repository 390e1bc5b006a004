#include <algorithm>
#include <csignal>
#include <memory>

#include <fmt/format.h>

#include <strata/text/prompts.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/infer/conversation_cache.h>
#include <strata/infer/generation_source.h>
#include <strata/infer/generator.h>

#include "exit_code.h"
#include "terminal/line_editor.h"
#include "print.h"
#include "terminal/token_printer.h"
#include "verbs/model/chat_arguments.h"
#include "verbs/model/generation_sizes.h"
#include "verbs/model/sampling_options.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::string_view kHelp =
    "/reset          begin a new conversation\n"
    "/system TEXT    begin a new one with this system message\n"
    "/retry          answer the last message again, with other random numbers\n"
    "/save FILE      append the conversation to FILE as a line of JSON, which strata trains on\n"
    "/help           show this\n"
    "/quit, Ctrl-D   end; Ctrl-C stops an answer\n";

volatile std::sig_atomic_t interrupted = 0;

/// While it lives, Ctrl-C ends an answer instead of the program.
class StopsAnswer {
 public:
  StopsAnswer() {
    interrupted = 0;
    before_ = std::signal(SIGINT, [](int) { interrupted = 1; });
  }
  ~StopsAnswer() { std::signal(SIGINT, before_); }
  StopsAnswer(const StopsAnswer&) = delete;
  StopsAnswer& operator=(const StopsAnswer&) = delete;

 private:
  void (*before_)(int) = SIG_DFL;
};

/// Snapshots of the states of a conversation: where its next prompts may go on from, before its last answer
/// and before the one that is being written, which /retry replaces.
constexpr std::int64_t kSnapshots = 2;

/// The conversation, and which of its tokens are in the KV cache.
class Chat {
 public:
  Chat(const Args& args, const GenerationSource& source, const ChatTemplate& chat, Job& job,
       std::int64_t context)
      : args_(args), source_(source), chat_(chat), job_(job), context_(context) {
    reset(args.system);
  }

  void reset(const std::string& system) {
    messages_.clear();
    if (!system.empty()) messages_.push_back({"system", system});
  }
  const std::vector<ChatMessage>& messages() const noexcept { return messages_; }

  /// Answers a message. What was not answered because of an error is forgotten.
  Status answer(const std::string& text) {
    messages_.push_back({"user", text});
    Status status = answer_last();
    if (!status.is_ok()) messages_.pop_back();
    return status;
  }
  Status retry() {
    if (messages_.empty() || messages_.back().role != "assistant")
      return Status::error(Code::invalid, "there is no answer yet");
    ChatMessage before = std::move(messages_.back());
    messages_.pop_back();
    ++retries_;
    Status status = answer_last();
    if (!status.is_ok()) messages_.push_back(std::move(before));
    return status;
  }
  /// Appends {"messages": [...]} to a file.
  Status save(const std::string& path) const {
    std::string line;
    for (const ChatMessage& message : messages_)
      line += str(line.empty() ? "" : ", ", "{\"role\": ", json_string(message.role),
                  ", \"content\": ", json_string(message.content), "}");
    STRATA_TRY_ASSIGN(const auto file, posix_io().open(path, OpenMode::append));
    const std::string text = str("{\"messages\": [", line, "]}\n");
    return write_all(*file, 0, std::as_bytes(std::span(text)));
  }

 private:
  Status answer_last() {
    STRATA_TRY_ASSIGN(const PromptTokens tokens,
                      encode_prompt(source_.tokenizer(), {{}, messages_}, chat_, ends_));
    if (static_cast<std::int64_t>(tokens.ids.size()) >= context_)
      return Status::error(Code::invalid,
                           str("the conversation has ", tokens.ids.size(), " tokens, and its context is ",
                               context_, "; /reset begins a new one, --context N enlarges it"));
    STRATA_TRY_ASSIGN(const std::vector<std::int32_t> ids, generate(tokens));
    STRATA_TRY_ASSIGN(const std::string bytes, source_.tokenizer().decode(ids));
    Utf8Stream stream;
    std::string text = stream.push(bytes);
    messages_.push_back({"assistant", text + stream.finish()});
    return {};
  }

  Result<std::vector<std::int32_t>> generate(const PromptTokens& tokens) {
    STRATA_TRY_ASSIGN(Sampler sampler, Sampler::create(sampling_of(args_)));
    Generator generator(job_.engine(), sampler,
                        {.max_tokens = args_.tokens.value_or(context_),
                         .context = static_cast<std::int32_t>(context_),
                         .vocab = source_.tokenizer().vocab_size(),
                         .seed = static_cast<std::uint64_t>(args_.seed) + retries_,
                         .virtual_tokens = source_.virtual_tokens()});
    GenerationRequest request{.index = messages_.size(), .prompt = tokens.ids, .stop_ids = tokens.stop_ids};
    for (const std::int32_t id : source_.stop_ids()) request.stop_ids.push_back(id);
    STRATA_TRY_ASSIGN(request.adapter, source_.choose_adapter(std::nullopt));
    request.cached = cache_.begin(tokens.ids);
    request.keep_at =
        static_cast<std::int32_t>(lasting_tokens(source_.tokenizer(), messages_, chat_, tokens.ids));
    TokenPrinter printer(args_.out, source_.tokenizer());
    std::vector<std::int32_t> ids;
    const StopsAnswer stops;
    const auto done = generator.run(std::span(&request, 1), [&](std::size_t, std::int32_t id) -> Status {
      cache_.sampled(id);
      if (interrupted != 0) return Status::error(Code::cancelled, "the answer was stopped");
      ids.push_back(id);
      return printer.put(id);
    });
    STRATA_TRY(printer.finish());
    if (!done.has_value() && done.status().code() != Code::cancelled) {
      cache_.forget();
      return done.status();
    }
    if (done.has_value()) {
      cache_.ended(done->front().finish_reason);
      say_if_cut(done->front());
    }
    return ids;
  }

  void say_if_cut(const Completion& done) const {
    if (done.finish_reason == FinishReason::context_full)
      print(args_.err, str("strata chat: the answer is cut: its context of ", context_,
                           " tokens is full; /reset begins a new conversation, --context N enlarges it\n"));
    if (done.finish_reason == FinishReason::max_tokens)
      print(args_.err, str("strata chat: the answer is cut after ", done.ids.size(),
                           " tokens; --tokens N allows more\n"));
  }

  const Args& args_;
  const GenerationSource& source_;
  const ChatTemplate& chat_;
  const std::vector<std::int32_t> ends_ = answer_ends(source_.tokenizer(), chat_);
  Job& job_;
  const std::int64_t context_;
  std::vector<ChatMessage> messages_;
  ConversationCache cache_{job_.engine(), source_.virtual_tokens()};
  std::uint64_t retries_ = 0;
};

// Does what a line asks for. Returns whether the conversation goes on.
Result<bool> obey(const Args& args, Chat& chat, const std::string& line) {
  const std::size_t space = std::min(line.find(' '), line.size());
  const std::string command = line.substr(0, space);
  const std::string rest = line.substr(std::min(space + 1, line.size()));
  if (line.empty()) return true;
  if (command == "/quit" || command == "/exit") return false;
  Status status;
  if (command == "/help")
    print(args.out, kHelp);
  else if (command == "/reset" || command == "/system")
    chat.reset(command == "/system" ? rest : args.system);
  else if (command == "/retry")
    status = chat.retry();
  else if (command == "/save")
    status = rest.empty() ? Status::error(Code::invalid, "/save needs the name of a file") : chat.save(rest);
  else if (line.front() == '/')
    status = Status::error(Code::invalid, str("unknown command ", command, "; /help lists all"));
  else
    status = chat.answer(line);
  // The user is there and can say something else, unless nobody reads the output or the model is broken.
  if (status.code() == Code::invalid || status.code() == Code::not_found) {
    print(args.err, str("strata chat: ", status.message(), "\n"));
    return true;
  }
  STRATA_TRY(status);
  return true;
}

std::string history_file(const std::vector<std::string>& environment) {
  std::string state, home;
  for (const std::string& variable : environment) {
    if (variable.starts_with("XDG_STATE_HOME=")) state = variable.substr(15);
    if (variable.starts_with("HOME=")) home = variable.substr(5);
  }
  if (state.empty() && !home.empty()) state = home + "/.local/state";
  return state.empty() ? std::string() : state + "/strata/chat_history";
}

Status converse(const Args& args) {
  const auto warn = [&](std::string_view text) { print(args.err, str("strata chat: ", text, "\n")); };
  STRATA_TRY_ASSIGN(const std::unique_ptr<GenerationSource> source,
                    GenerationSource::open(args, {args.adapters, args.default_adapter}, posix_io(), warn));
  STRATA_TRY(source->chat().status());
  STRATA_TRY(set_chat_arguments(args, *source));
  if (const std::string warning = source->chat_warning(); !warning.empty()) warn(warning);
  const std::int64_t most = source->max_positions(), wanted = args.context > 0 ? args.context : kUsualContext;
  if (args.context > 0 && most > 0 && wanted > most)
    return Status::error(Code::invalid,
                         str("--context ", wanted, ": the model supports ", most, " positions"));
  const std::int64_t context = most > 0 ? std::min(most, wanted) : wanted;
  STRATA_TRY_ASSIGN(const std::unique_ptr<Job> job,
                    source->start({1, 1, context, 1, kSnapshots}, kPrefillRows, warn));
  print(args.err,
        str(args.items.front(), ", ", source->chat()->name(), " template, ", to_string(source->dtype()),
            ", context of ", context, " tokens; /help lists commands\n"));
  Chat chat(args, *source, *source->chat(), *job, context);
  LineEditor editor(history_file(args.environment));
  for (;;) {
    STRATA_TRY_ASSIGN(const std::optional<std::string> line, editor.read("> "));
    if (!line) return {};
    STRATA_TRY_ASSIGN(const bool goes_on, obey(args, chat, *line));
    if (!goes_on) return {};
  }
}

}  // namespace

int run_chat(const Args& args) {
  const Status status = converse(args);
  return status.is_ok() ? static_cast<int>(kExitOk) : print_error(args, "chat", status);
}

}  // namespace strata::cli
