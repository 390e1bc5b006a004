#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/text/tokenizer_spec.h>
#include <strata/runtime/status.h>

namespace strata::detail {

inline constexpr std::uint64_t kMaxTokenizerFileBytes = std::uint64_t{64}
                                                        << 20;  // published ones are near 33 MB
inline constexpr std::size_t kMaxMerges = std::size_t{1} << 21;

/// Reads one entry of added_tokens or added_tokens_decoder, except its id, which the two store in different
/// places. Errors: `corrupt`, `unsupported` for an unknown key.
Result<AddedToken> read_added_token(const nlohmann::json& token);
/// Stores every token of a vocabulary ({"Ġthe": 262, ...}) and of `spec.added` at its id in `spec.tokens`.
/// Errors: `corrupt` if ids are not dense or contradict each other, or a token represents no bytes;
/// `unsupported`.
Status read_vocabulary(const nlohmann::json& vocab, TokenizerSpec& spec);
/// Appends the merge of two tokens, given as the vocabulary writes them. Errors: `corrupt`, `invalid`.
Status add_merge(const nlohmann::json& vocab, const std::string& left, const std::string& right,
                 TokenizerSpec& spec);
/// Splits "Ġ t" of a file; returns false unless it is two tokens separated by a space.
bool split_merge(std::string_view text, std::string& left, std::string& right);
std::string merge_text(const TokenizerSpec& spec, const Merge& merge);

/// The tokenizer.json of a tokenizer.
std::string tokenizer_json(const TokenizerSpec& spec);

/// The text as a JSON string; bytes that are no UTF-8 become U+FFFD.
std::string quoted(const std::string& text);
/// The key of a token in a vocabulary: in the byte alphabet, or unchanged for added tokens, which are
/// searched by it.
std::string vocabulary_key(const TokenizerSpec& spec, const std::vector<const AddedToken*>& added_by_id,
                           std::size_t id);
/// The added tokens indexed by id; null for other tokens.
std::vector<const AddedToken*> added_by_id(const TokenizerSpec& spec);

}  // namespace strata::detail
