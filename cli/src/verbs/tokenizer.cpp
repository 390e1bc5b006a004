#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "load_config.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 32;

Result<std::string> train(const Args& args, Io& io) {
  if (args.items.empty()) return Status::error(Code::invalid, "name at least one text file");
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  for (const std::string& file : args.items) {
    STRATA_TRY_ASSIGN(std::string text, read_text(io, file, kMaxTextBytes));
    bytes += text.size();
    texts.push_back(std::move(text));
  }
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer,
                    Tokenizer::train(views, static_cast<std::int32_t>(args.vocab)));
  STRATA_TRY(tokenizer.save(io, args.tokenizer));
  std::size_t tokens = 0;
  for (const std::string& text : texts) tokens += tokenizer.encode(text).size();
  return fmt::format("{}: {} tokens learnt from {} bytes, {:.3f} bytes a token\n", args.tokenizer,
                     tokenizer.vocab_size(), bytes,
                     tokens > 0 ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0.0);
}

Result<std::string> encode(const Args& args, Io& io) {
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, args.tokenizer));
  std::string out;
  for (const std::string& text : args.items) {
    for (const std::int32_t id : tokenizer.encode(text))
      out += str(out.empty() || out.back() == '\n' ? "" : " ", id);
    out += "\n";
  }
  return out;
}

Result<std::string> decode(const Args& args, Io& io) {
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, args.tokenizer));
  std::vector<std::int32_t> ids;
  for (const std::string& item : args.items) {
    char* end = nullptr;
    const long id = std::strtol(item.c_str(), &end, 10);
    if (item.empty() || *end != '\0' || id < 0 || id >= tokenizer.vocab_size())
      return Status::error(Code::invalid, str("'", item, "' is no token id below ", tokenizer.vocab_size()));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  STRATA_TRY_ASSIGN(const std::string text, tokenizer.decode(ids));
  return text + "\n";
}

}  // namespace

int run_tokenizer(const Args& args) {
  Io& io = posix_io();
  const auto done = args.action == "train"    ? train(args, io)
                    : args.action == "encode" ? encode(args, io)
                                              : decode(args, io);
  if (!done.has_value()) return print_error(args, str("tokenizer ", args.action), done.status());
  print(args.out, *done);
  return kExitOk;
}

}  // namespace strata::cli
