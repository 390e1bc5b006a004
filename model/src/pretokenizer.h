#pragma once

#include <cstddef>
#include <string_view>

namespace strata::detail {

/// A run longer than this is cut: it bounds the memory of one merge, and no text meant to be read has one.
inline constexpr std::size_t kMaxPieceBytes = std::size_t{16} << 20;

/// Cuts text into the pieces that no merge crosses, as GPT-2's regular expression does (Radford et al. 2019,
/// the released encoder.py):
///   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// One pass, no backtracking. A byte that is not UTF-8 counts as one character of the "other" class.
class PieceSplitter {
 public:
  explicit PieceSplitter(std::string_view text) noexcept : text_(text) {}
  /// The next piece; empty at the end. The pieces joined are the text.
  std::string_view next() noexcept;

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

/// The largest n such that cutting the text before byte n changes no piece, whatever follows; 0 where there
/// is none. (Before an ASCII space after a character that is not one, a new piece begins in every context.)
std::size_t last_safe_cut(std::string_view text) noexcept;

}  // namespace strata::detail
