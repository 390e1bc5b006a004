#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/model/tokenizer_spec.h>
#include <strata/runtime/status.h>

namespace strata::detail {

inline constexpr std::uint64_t kMaxTokenizerFileBytes = std::uint64_t{64}
                                                        << 20;  // published ones are near 33 MB
inline constexpr std::size_t kMaxMerges = std::size_t{1} << 21;

/// One entry of added_tokens or added_tokens_decoder but for its id, which they keep in different places.
/// Errors: `corrupt`, `unsupported` for a key that is not known.
Result<AddedToken> read_added_token(const nlohmann::json& token);
/// Puts every token of a vocabulary ({"Ġthe": 262, ...}) and of `spec.added` at its id in `spec.tokens`.
/// Errors: `corrupt` where ids are not dense or contradict each other, or a token stands for no bytes;
/// `unsupported`.
Status read_vocabulary(const nlohmann::json& vocab, TokenizerSpec& spec);
/// Appends the merge of two tokens of the vocabulary as it is written. Errors: `corrupt`, `invalid`.
Status add_merge(const nlohmann::json& vocab, const std::string& left, const std::string& right,
                 TokenizerSpec& spec);
/// "Ġ t" as files write it; false where that is not two tokens and a space between.
bool split_merge(std::string_view text, std::string& left, std::string& right);
std::string merge_text(const TokenizerSpec& spec, const Merge& merge);

/// JSON of a text; bytes that are no UTF-8 become U+FFFD.
std::string quoted(const std::string& text);
/// How a vocabulary writes a token: in the byte alphabet, or as it is for the added ones, which are found by
/// it.
std::string vocabulary_key(const TokenizerSpec& spec, const std::vector<const AddedToken*>& added_by_id,
                           std::size_t id);
/// By id; null for the tokens that are not added.
std::vector<const AddedToken*> added_by_id(const TokenizerSpec& spec);

}  // namespace strata::detail
