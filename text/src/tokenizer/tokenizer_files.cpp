#include <strata/text/tokenizer.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include <strata/text/model_files.h>
#include <strata/runtime/str.h>

#include <strata/runtime/config/json_fields.h>
#include <strata/runtime/config/strict_json.h>
#include "tokenizer/tokenizer_vocab.h"

namespace strata {
namespace {

using detail::corrupt;
using detail::shown;
using detail::unsupported;
using nlohmann::json;

Status take_family(const TokenizerConfig& config, TokenizerSpec& spec) {
  std::string_view name = config.tokenizer_class;
  if (name.ends_with("Fast")) name.remove_suffix(4);
  if (name == "Qwen2Tokenizer") {
    spec.split = SplitRule::qwen2;
    spec.nfc = true;
  } else if (!name.empty() && name != "GPT2Tokenizer") {
    return unsupported(str("tokenizer_class ", shown(config.tokenizer_class),
                           " with vocab.json and merges.txt; known are GPT2Tokenizer and Qwen2Tokenizer"));
  }
  if (config.add_prefix_space)
    return unsupported("tokenizer_config: add_prefix_space = true is not supported");
  return {};
}

/// Reads the added tokens of the configuration, and the tokens it names that are in the vocabulary.
Status take_added(const TokenizerConfig& config, const json& vocab, TokenizerSpec& spec) {
  spec.added = config.added;
  const auto is_added = [&](const std::string& content) {
    return std::any_of(spec.added.begin(), spec.added.end(),
                       [&](const AddedToken& token) { return token.content == content; });
  };
  for (const std::string& name : {config.bos_token, config.eos_token, config.pad_token, config.unk_token,
                                  std::string(Tokenizer::kEndOfText)}) {
    if (name.empty() || is_added(name)) continue;
    const auto at = vocab.find(name);
    if (at == vocab.end()) {
      if (name == Tokenizer::kEndOfText) continue;
      return Status::error(Code::invalid,
                           str("tokenizer_config names ", shown(name),
                               ", which is neither in the vocabulary nor among the added tokens"));
    }
    if (!at->is_number_unsigned() ||
        at->get<std::uint64_t>() >= static_cast<std::uint64_t>(TokenizerSpec::kMaxVocab))
      return corrupt(str("token ", shown(name), " has the id ", shown(*at)));
    spec.added.push_back({.id = at->get<std::int32_t>(), .content = name});
  }
  return {};
}

Status take_bos(const TokenizerConfig& config, TokenizerSpec& spec) {
  if (!config.add_bos_token) return {};
  for (const AddedToken& token : spec.added)
    if (token.content == config.bos_token) spec.prefix = {token.id};
  if (spec.prefix.empty())
    return Status::error(Code::invalid, "tokenizer_config: add_bos_token = true without a bos_token");
  return {};
}

Status read_merges(std::string_view text, const json& vocab, TokenizerSpec& spec) {
  std::string left;
  std::string right;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view merge = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (merge.ends_with('\r')) merge.remove_suffix(1);
    if (merge.starts_with("#version")) continue;
    if (!detail::split_merge(merge, left, right))
      return corrupt(str("line ", line, " is ", shown(std::string(merge)), ", not two tokens"));
    if (Status status = detail::add_merge(vocab, left, right, spec); !status)
      return std::move(status).annotate(str("line ", line));
  }
  return {};
}

Result<TokenizerSpec> spec_from(const std::string& vocab_json, const std::string& merges_txt,
                                const TokenizerConfig& config) {
  auto vocab = detail::parse_strict_json(vocab_json);
  if (!vocab) return std::move(vocab).error().annotate("vocab.json");
  if (!vocab->is_object()) return corrupt("vocab.json: not a JSON object");
  TokenizerSpec spec;
  STRATA_TRY(take_family(config, spec));
  STRATA_TRY(take_added(config, *vocab, spec));
  STRATA_TRY(detail::read_vocabulary(*vocab, spec).annotate("vocab.json"));
  STRATA_TRY(take_bos(config, spec));
  STRATA_TRY(read_merges(merges_txt, *vocab, spec).annotate("merges.txt"));
  return spec;
}

Result<Tokenizer> marked(Io& io, const std::string& folder, const Tokenizer& tokenizer) {
  if (folder.empty()) return tokenizer;
  STRATA_TRY_ASSIGN(TextMarkers markers, load_text_markers(io, folder, tokenizer));
  return tokenizer.with_markers(std::move(markers));
}

Result<Tokenizer> load_vocab_and_merges(Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(const TokenizerConfig config, load_tokenizer_config(io, folder));
  // Hugging Face's older form of added_tokens_decoder, which lacks lstrip, rstrip and special.
  if (const std::string old = folder + "/added_tokens.json"; config.added.empty() && io.exists(old))
    return unsupported(old + " without added_tokens_decoder in tokenizer_config.json is not supported");
  STRATA_TRY_ASSIGN(const std::string vocab,
                    read_tokenizer_file_in(io, folder, "vocab.json", detail::kMaxTokenizerFileBytes));
  STRATA_TRY_ASSIGN(const std::string merges,
                    read_tokenizer_file_in(io, folder, "merges.txt", detail::kMaxTokenizerFileBytes));
  return Tokenizer::from_vocab_and_merges(vocab, merges, config);
}

}  // namespace

Result<Tokenizer> Tokenizer::from_vocab_and_merges(const std::string& vocab_json,
                                                   const std::string& merges_txt,
                                                   const TokenizerConfig& config) {
  STRATA_TRY_ASSIGN(TokenizerSpec spec, spec_from(vocab_json, merges_txt, config));
  return create(std::move(spec));
}

Result<Tokenizer> Tokenizer::load(Io& io, const std::string& path) {
  std::string file = path;
  if (tokenizer_file_exists(io, path + "/tokenizer.json")) {
    file = path + "/tokenizer.json";
  } else if (io.exists(path + "/vocab.json") && io.exists(path + "/merges.txt")) {
    Result<Tokenizer> loaded = load_vocab_and_merges(io, path);
    if (!loaded) return std::move(loaded).error().annotate(path);
    return marked(io, path, *loaded);
  }
  if (file == path && io.exists(path + "/."))
    return Status::error(
        Code::not_found,
        str(path,
            " has no tokenizer.json, and no vocab.json with merges.txt: save the tokenizer there, too "
            "(AutoTokenizer.from_pretrained('MODEL').save_pretrained('",
            path, "'))"));
  const std::string folder = folder_of_tokenizer(file);
  // A file that is named may be a link to anywhere, but one of a folder of Hugging Face follows its rule.
  if (const std::filesystem::path named(file); named.filename() == "tokenizer.json" &&
                                               named.has_parent_path() &&
                                               io.exists(named.parent_path().string() + "/config.json")) {
    STRATA_TRY_ASSIGN(file, file_in_hf_folder(named.parent_path().string(), "tokenizer.json"));
  }
  STRATA_TRY_ASSIGN(const std::string text, read_tokenizer_file(io, file, detail::kMaxTokenizerFileBytes));
  Result<Tokenizer> loaded = from_json(text);
  if (!loaded) return std::move(loaded).error().annotate(file);
  return marked(io, folder, *loaded);
}

Status Tokenizer::save_vocab_and_merges(Io& io, const std::string& folder) const {
  const TokenizerSpec& s = spec();
  if (s.split != SplitRule::gpt2 || s.nfc || s.ignore_merges || !s.prefix.empty() || !s.suffix.empty())
    return unsupported(str(folder,
                           ": vocab.json and merges.txt cannot express a tokenizer whose pre-tokenization or "
                           "template differs from GPT-2's; write a tokenizer.json"));
  for (const AddedToken& token : s.added)
    if (token.content != kEndOfText || !token.special || !token.in_vocab)
      return unsupported(str(folder, ": vocab.json and merges.txt cannot express the added token ",
                             shown(token.content), "; write a tokenizer.json"));
  const std::vector<const AddedToken*> added = detail::added_by_id(s);
  std::string vocab = "{";
  for (std::size_t id = 0; id < s.tokens.size(); ++id)
    vocab += str(id == 0 ? "" : ", ", detail::quoted(detail::vocabulary_key(s, added, id)), ": ", id);
  std::string merges = "#version: 0.2\n";
  for (const Merge& merge : s.merges) merges += detail::merge_text(s, merge) + "\n";
  STRATA_TRY(io.make_dirs(folder));
  STRATA_TRY(write_text_atomically(io, folder + "/vocab.json", vocab + "}\n"));
  return write_text_atomically(io, folder + "/merges.txt", merges);
}

}  // namespace strata
