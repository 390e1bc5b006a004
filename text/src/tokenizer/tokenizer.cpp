#include <strata/text/tokenizer.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include <strata/runtime/str.h>

#include "text/byte_alphabet.h"
#include "text/nfc.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_model.h"

namespace strata {
namespace {

using detail::TokenizerModel;

std::string spelled(const std::string& token) {
  return str("'", detail::bytes_to_alphabet(token.substr(0, 60)), "'");
}
Status unusable(std::string message) { return Status::error(Code::corrupt, std::move(message)); }

Status check_sizes(const TokenizerSpec& spec) {
  const std::size_t n = spec.tokens.size();
  if (n > static_cast<std::size_t>(TokenizerSpec::kMaxVocab))
    return Status::error(Code::invalid, str(n, " tokens, at most ", TokenizerSpec::kMaxVocab));
  for (std::size_t id = 0; id < n; ++id)
    if (spec.tokens[id].empty() || spec.tokens[id].size() > Tokenizer::kMaxTokenBytes)
      return Status::error(Code::invalid, str("token ", id, " has ", spec.tokens[id].size(),
                                              " bytes; allowed are 1 to ", Tokenizer::kMaxTokenBytes));
  for (const auto* ids : {&spec.prefix, &spec.suffix})
    for (const std::int32_t id : *ids)
      if (id < 0 || static_cast<std::size_t>(id) >= n)
        return Status::error(Code::invalid, str("the template adds id ", id, " in a vocabulary of ", n));
  return {};
}

/// The tokens that merges may start from and produce, by their bytes. An added token is included if the
/// vocabulary also has it with the same spelling, in printable ASCII. A special token is never produced by
/// merges, since text could then end a document.
using IdOf = std::unordered_map<std::string_view, std::int32_t>;
bool spells_itself(const std::string& content) {
  return std::all_of(content.begin(), content.end(), [](char c) { return c > ' ' && c < '\x7F'; });
}

Result<IdOf> ids_of_vocabulary(const TokenizerSpec& spec) {
  std::vector<bool> merged(spec.tokens.size(), true);
  for (const AddedToken& token : spec.added)
    merged[static_cast<std::size_t>(token.id)] =
        token.in_vocab && !token.special && spells_itself(token.content);
  for (const std::int32_t id : spec.byte_tokens) merged[static_cast<std::size_t>(id)] = false;
  IdOf out;
  out.reserve(spec.tokens.size());
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!merged[id]) continue;
    const auto [at, is_new] = out.emplace(spec.tokens[id], static_cast<std::int32_t>(id));
    if (!is_new)
      return unusable(str("token ", spelled(spec.tokens[id]), " is both ", at->second, " and ", id));
  }
  return out;
}

Status take_added(TokenizerModel& model) {
  const TokenizerSpec& spec = model.spec;
  const auto n = static_cast<std::int32_t>(spec.tokens.size());
  model.special.assign(spec.tokens.size(), false);
  std::vector<detail::AddedTokenMatcher::Entry> original;
  std::vector<detail::AddedTokenMatcher::Entry> normalized;
  std::vector<detail::AddedTokenMatcher::Entry> special_ones;
  std::vector<bool> seen(spec.tokens.size());
  for (std::uint32_t i = 0; i < spec.added.size(); ++i) {
    const AddedToken& token = spec.added[i];
    if (token.id < 0 || token.id >= n)
      return Status::error(Code::invalid, str("added token ", spelled(token.content), " has id ", token.id,
                                              " in a vocabulary of ", n));
    const auto id = static_cast<std::size_t>(token.id);
    if (token.content != spec.tokens[id])
      return unusable(str("token ", id, " is ", spelled(spec.tokens[id]),
                          " in the vocabulary, but is added as ", spelled(token.content)));
    if (seen[id]) return unusable(str("token ", id, " is added twice"));
    seen[id] = true;
    model.special[id] = token.special;
    std::string content = token.content;
    if (token.normalized && spec.nfc) content = detail::to_nfc(content).value_or(content);
    (token.normalized ? normalized : original).push_back({std::move(content), i});
    if (token.lstrip || token.rstrip || token.content.find_first_of(" \t\n\v\f\r") != std::string::npos)
      model.safe_cuts = false;
    if (token.special) special_ones.push_back({token.content, i});
  }
  model.original = detail::AddedTokenMatcher(std::move(original));
  model.normalized = detail::AddedTokenMatcher(std::move(normalized));
  model.special_ones = detail::AddedTokenMatcher(std::move(special_ones));
  return {};
}

Status take_bytes(TokenizerModel& model, const IdOf& id_of) {
  for (std::size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const auto found = id_of.find(std::string_view(&byte, 1));
    if (found == id_of.end()) return Status::error(Code::invalid, str("no token for byte ", b));
    model.bpe.byte_ids[b] = found->second;
  }
  return {};
}

Status take_characters(TokenizerModel& model, const IdOf& id_of) {
  const std::vector<std::int32_t>& bytes = model.spec.byte_tokens;
  if (bytes.size() != model.bpe.byte_ids.size())
    return Status::error(Code::invalid, str(bytes.size(), " byte tokens; 256 are needed"));
  std::copy(bytes.begin(), bytes.end(), model.bpe.byte_ids.begin());
  model.bpe.characters.emplace();
  for (const auto& [text, id] : id_of) model.bpe.characters->take(text, id);
  return {};
}

Status take_merges(TokenizerModel& model, const IdOf& id_of) {
  TokenizerSpec& spec = model.spec;
  const auto n = static_cast<std::int32_t>(spec.tokens.size());
  const auto ordinary = [&](std::int32_t id) {
    if (id < 0 || id >= n) return false;
    const auto found = id_of.find(spec.tokens[static_cast<std::size_t>(id)]);
    return found != id_of.end() && found->second == id;
  };
  model.bpe.pairs = detail::PairTable(spec.merges.size());
  std::string joined;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    Merge& merge = spec.merges[rank];
    if (!ordinary(merge.left) || !ordinary(merge.right))
      return unusable(str("merge ", rank, " is of ", merge.left, " and ", merge.right,
                          ", which are not two ordinary tokens of ", n));
    joined = spec.tokens[static_cast<std::size_t>(merge.left)];
    joined += spec.tokens[static_cast<std::size_t>(merge.right)];
    const auto found = id_of.find(joined);
    if (found == id_of.end())
      return unusable(str("merge ", rank, " produces ", spelled(joined), ", which is not an ordinary token"));
    merge.result = found->second;
    if (!model.bpe.pairs.insert(merge.left, merge.right, {static_cast<std::uint32_t>(rank), merge.result}))
      return unusable(str("merge ", rank, " of ", spelled(joined), " occurs twice"));
  }
  return {};
}

Digest digest_of_spec(const TokenizerSpec& spec) {
  Digester digester;
  const auto number = [&](std::uint64_t value) { digester.update(std::as_bytes(std::span(&value, 1))); };
  const auto text = [&](std::string_view value) {
    number(value.size());
    digester.update(value);
  };
  number(spec.tokens.size());
  for (const std::string& token : spec.tokens) text(token);
  number(spec.merges.size());
  for (const Merge& merge : spec.merges) {
    const std::array<std::int32_t, 3> ids = {merge.left, merge.right, merge.result};
    digester.update(std::as_bytes(std::span(ids)));
  }
  number(spec.added.size());
  for (const AddedToken& token : spec.added) {
    number(static_cast<std::uint64_t>(token.id));
    number(token.special | token.lstrip << 1 | token.rstrip << 2 | token.single_word << 3 |
           token.normalized << 4 | token.in_vocab << 5);
  }
  number(static_cast<std::uint64_t>(spec.split));
  number(spec.nfc | spec.ignore_merges << 1 | static_cast<int>(spec.prefix_space) << 2);
  for (const auto* ids : {&spec.prefix, &spec.suffix}) {
    number(ids->size());
    digester.update(std::as_bytes(std::span(*ids)));
  }
  return digester.digest();
}

}  // namespace

Result<Tokenizer> Tokenizer::create(TokenizerSpec spec) {
  auto model = std::make_shared<TokenizerModel>();
  model->spec = std::move(spec);
  STRATA_TRY(check_sizes(model->spec));
  STRATA_TRY(take_added(*model));
  STRATA_TRY_ASSIGN(const IdOf id_of, ids_of_vocabulary(model->spec));
  if (model->spec.split == SplitRule::none) {
    STRATA_TRY(take_characters(*model, id_of));
  } else {
    STRATA_TRY(take_bytes(*model, id_of));
  }
  STRATA_TRY(take_merges(*model, id_of));
  if (model->spec.ignore_merges)
    for (const auto& [bytes, id] : id_of) model->bpe.whole.emplace(bytes, id);
  model->digest = digest_of_spec(model->spec);
  Tokenizer tokenizer(std::move(model));
  return tokenizer.with_markers(markers_of(tokenizer));
}

Tokenizer Tokenizer::with_markers(TextMarkers markers) const {
  Tokenizer other = *this;
  other.markers_ = std::make_shared<const TextMarkers>(std::move(markers));
  return other;
}

Result<Tokenizer> Tokenizer::create(std::vector<std::string> tokens, std::vector<Merge> merges,
                                    std::vector<std::int32_t> special) {
  TokenizerSpec spec;
  std::sort(special.begin(), special.end());
  for (const std::int32_t id : special) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens.size())
      return Status::error(Code::invalid, str("special id ", id, " in a vocabulary of ", tokens.size()));
    spec.added.push_back({.id = id, .content = tokens[static_cast<std::size_t>(id)], .in_vocab = true});
  }
  spec.tokens = std::move(tokens);
  spec.merges = std::move(merges);
  return create(std::move(spec));
}

const TokenizerSpec& Tokenizer::spec() const noexcept { return model_->spec; }
std::int32_t Tokenizer::vocab_size() const noexcept {
  return static_cast<std::int32_t>(model_->spec.tokens.size());
}
const Digest& Tokenizer::digest() const noexcept { return model_->digest; }
Digest Tokenizer::document_digest() const {
  // Where only <|endoftext|> separates texts, as it always did once, files of tokens that exist stay valid.
  const bool adds_tokens = markers_->encloses && !spec().prefix.empty();
  if (!adds_tokens && markers_->end == added_id(kEndOfText)) return digest();
  Digester digester;
  digester.update(digest());
  const std::array<std::int32_t, 2> marks = {adds_tokens ? 1 : 0, markers_->end};
  digester.update(std::as_bytes(std::span(marks)));
  return digester.digest();
}
bool Tokenizer::is_special(std::int32_t id) const noexcept {
  return id >= 0 && id < vocab_size() && model_->special[static_cast<std::size_t>(id)];
}
std::int32_t Tokenizer::added_id(std::string_view content) const noexcept {
  for (const AddedToken& token : model_->spec.added)
    if (token.content == content) return token.id;
  return -1;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special,
                                            AddSpecialTokens add_special, TextPosition place) const {
  const TokenizerModel& model = *model_;
  const TokenizerSpec& spec = model.spec;
  std::vector<std::int32_t> out;
  out.reserve(text.size() / 3 + 8);
  const bool enclosed = add_special == AddSpecialTokens::yes && markers_->encloses;
  if (enclosed) out.insert(out.end(), spec.prefix.begin(), spec.prefix.end());
  detail::BpeEncoder encoder(model.bpe, spec.split, text.size());
  const auto wanted = [&](const AddedToken& t, std::size_t, std::size_t) {
    return !t.special || special == SpecialTokens::recognised;
  };
  const auto put = [&](const AddedToken& t, std::size_t, std::size_t) { out.push_back(t.id); };
  const auto merge = [&](std::string_view part) { encoder.encode(part, out); };
  const auto place_of = [&](std::string_view part) {
    return part.data() == text.data() ? place : TextPosition::after_token;
  };
  detail::for_each_part(
      text, model.original, spec.added, wanted,
      [&](std::string_view part) {
        std::optional<std::string> other;
        if (spec.nfc) other = detail::to_nfc(part);
        if (spec.split == SplitRule::none) other = detail::normalize_spaces(part, spec, place_of(part));
        detail::for_each_part(other ? *other : part, model.normalized, spec.added, wanted, merge, put);
      },
      put);
  if (enclosed) out.insert(out.end(), spec.suffix.begin(), spec.suffix.end());
  return out;
}

std::vector<FoundToken> Tokenizer::special_tokens_in(std::string_view text,
                                                     std::span<const TextRange> allowed) const {
  std::vector<FoundToken> out;
  std::size_t next = 0;  // the first range that does not end before the present match
  detail::for_each_part(
      text, model_->special_ones, model_->spec.added,
      [&](const AddedToken&, std::size_t begin, std::size_t end) {
        while (next < allowed.size() && allowed[next].end < end) ++next;
        return next < allowed.size() && allowed[next].begin <= begin;
      },
      [](std::string_view) {},
      [&](const AddedToken& token, std::size_t begin, std::size_t end) {
        out.push_back({{begin, end}, token.id});
      });
  return out;
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string out;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size())
      return Status::error(Code::invalid, str("token id ", id, " in a vocabulary of ", vocab_size()));
    out += token(id);
  }
  return out;
}

std::string Tokenizer::normalized(std::string_view text, TextPosition place) const {
  if (spec().split == SplitRule::none) return detail::normalize_spaces(text, spec(), place);
  std::optional<std::string> nfc = spec().nfc ? detail::to_nfc(text) : std::nullopt;
  return nfc ? std::move(*nfc) : std::string(text);
}

bool Tokenizer::has_safe_cuts() const noexcept { return model_->safe_cuts; }

std::size_t Tokenizer::last_safe_cut(std::string_view text) const noexcept {
  if (!model_->safe_cuts) return 0;
  if (model_->bpe.characters) return model_->bpe.characters->last_cut(text);
  return detail::last_safe_cut(text, spec().split);
}

}  // namespace strata
