#include <strata/text/chat.h>
#include <strata/text/documents.h>
#include <strata/model/hf/model_files.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/output_file.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 32;

Result<std::string> train(const Args& args, Io& io) {
  if (args.items.empty()) return Status::error(Code::invalid, "no input: name at least one text file");
  const OutputFile output{"--out", args.tokenizer, "a tokenizer of strata", args.items, false, true};
  STRATA_TRY(check_output(output, [](std::string_view head) {
    return head.starts_with("{\n  \"version\": \"1.0\",") &&
           head.find("\"added_tokens\": [") != std::string_view::npos;
  }));
  std::vector<std::string> texts;
  std::size_t bytes = 0;
  ErrorList bad;
  for (const std::string& file : args.items) {
    Result<std::string> text = read_source_text(io, file, kMaxTextBytes);
    bad.add(text.status());
    texts.push_back(std::move(text).value_or(std::string()));
    bytes += texts.back().size();
  }
  STRATA_TRY(bad.status());
  if (bytes == 0)
    return Status::error(Code::invalid, str("the corpus is empty: ", plural(args.items.size(), "empty file"),
                                            "; the first is ", args.items.front()));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer,
                    Tokenizer::train(views, static_cast<std::int32_t>(args.vocab)));
  STRATA_TRY(tokenizer.save(io, args.tokenizer));
  std::size_t tokens = 0;
  for (const std::string& text : texts) tokens += tokenizer.encode(text).size();
  std::string text = fmt::format("{}: {} tokens trained on {} bytes, {:.3f} bytes per token\n",
                                 args.tokenizer, tokenizer.vocab_size(), bytes,
                                 tokens > 0 ? static_cast<double>(bytes) / static_cast<double>(tokens) : 0.0);
  if (tokenizer.vocab_size() < args.vocab)
    text +=
        fmt::format("only {} of the {} requested tokens: no other pair of tokens occurs twice in this text\n",
                    tokenizer.vocab_size(), args.vocab);
  return text;
}

Result<std::string> encode(const Args& args, Io& io) {
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, args.tokenizer));
  const SpecialTokens special = args.special ? SpecialTokens::recognised : SpecialTokens::as_text;
  const AddSpecialTokens add_special = args.add_special_tokens ? AddSpecialTokens::yes : AddSpecialTokens::no;
  std::string out;
  for (const std::string& text : args.items) {
    for (const std::int32_t id : tokenizer.encode(text, special, add_special))
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
      return Status::error(Code::invalid,
                           str("'", item, "' is not a token id below ", tokenizer.vocab_size()));
    ids.push_back(static_cast<std::int32_t>(id));
  }
  STRATA_TRY_ASSIGN(const std::string text, tokenizer.decode(ids));
  return text + "\n";
}

std::string_view name_of(SplitRule rule) {
  switch (rule) {
    case SplitRule::gpt2:
      return "gpt2";
    case SplitRule::digits:
      return "digits";
    case SplitRule::cl100k:
      return "cl100k";
    case SplitRule::qwen2:
      return "qwen2";
    case SplitRule::none:
      break;
  }
  return "none";
}

/// "<|im_end|> (151645)". The tokenizer may lack a token that its configuration names.
std::string named_token(const Tokenizer& tokenizer, const std::string& token) {
  if (token.empty()) return "none";
  const std::int32_t id = tokenizer.added_id(token);
  return id < 0 ? str(token, " (not an added token)") : str(token, " (", id, ")");
}
std::string ids_text(const std::vector<std::int32_t>& ids) {
  std::string out;
  for (const std::int32_t id : ids) out += str(out.empty() ? "" : " ", id);
  return out.empty() ? "nothing" : out;
}

/// Describes the configuration files beside a tokenizer in a Hugging Face folder.
Result<std::string> folder_info(const Tokenizer& tokenizer, Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(const TokenizerConfig config, load_tokenizer_config(io, folder));
  STRATA_TRY_ASSIGN(const GenerationConfig generation, load_generation_config(io, folder));
  const auto chat = config.chat_template.empty()
                        ? Result<ChatTemplate>(Status::error(Code::not_found, "none"))
                        : ChatTemplate::parse(config.chat_template, tokenizer.markers().words);
  std::string out =
      fmt::format("  bos           {}\n  eos           {}\n  pad           {}\n",
                  named_token(tokenizer, config.bos_token), named_token(tokenizer, config.eos_token),
                  named_token(tokenizer, config.pad_token));
  if (!generation.eos.empty()) out += str("  stop tokens   ", ids_text(generation.eos), "\n");
  return out + str("  chat          ", chat ? chat->name() : std::string(chat.status().message()), "\n");
}

Result<std::string> info(const Args& args, Io& io) {
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, args.tokenizer));
  const TokenizerSpec& spec = tokenizer.spec();
  std::size_t special = 0;
  for (const AddedToken& token : spec.added) special += token.special ? 1 : 0;
  std::string out = fmt::format(
      "{}\n  tokens        {}\n  merges        {}{}\n  added         {}, of them {} special\n  splits as     "
      "{}\n"
      "  normalizes    {}\n  template      {} before, {} after\n  end of text   {}\n  digest        {}\n",
      args.tokenizer, tokenizer.vocab_size(), spec.merges.size(),
      spec.ignore_merges ? ", ignored for pre-tokens that are in the vocabulary" : "", spec.added.size(),
      special, name_of(spec.split), spec.nfc ? "to NFC" : "nothing", ids_text(spec.prefix),
      ids_text(spec.suffix), tokenizer.markers().end < 0 ? "none" : str(tokenizer.markers().end),
      to_hex(tokenizer.digest()));
  // The folder's tokenizer may be tokenizer.json or vocab.json and merges.txt, so these files are looked for
  // instead.
  if (model_file_exists(io, args.tokenizer + "/tokenizer_config.json") ||
      io.exists(args.tokenizer + "/generation_config.json")) {
    STRATA_TRY_ASSIGN(const std::string beside, folder_info(tokenizer, io, args.tokenizer));
    out += beside;
  }
  return out;
}

}  // namespace

int run_tokenizer(const Args& args) {
  Io& io = posix_io();
  const auto done = args.action == "train"    ? train(args, io)
                    : args.action == "encode" ? encode(args, io)
                    : args.action == "decode" ? decode(args, io)
                                              : info(args, io);
  if (!done.has_value()) return print_error(args, str("tokenizer ", args.action), done.status());
  print(args.out, *done);
  return kExitOk;
}

}  // namespace strata::cli
