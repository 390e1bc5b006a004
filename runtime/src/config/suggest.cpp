#include <strata/runtime/config/suggest.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include <strata/runtime/config/config_schema.h>
#include <strata/runtime/str.h>

namespace strata {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  // The cost grows with the square of the length, which an attacker could choose; no typo is that long.
  if (word.size() > 100) return {};
  std::string_view best;
  int best_distance = 1 << 20;
  for (const std::string_view candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    const int allowed = std::max<int>(1, static_cast<int>(std::min(word.size(), candidate.size())) / 3);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

const OtherWord* find_other_word(const ConfigSchema& schema, std::string_view word) {
  std::string plain(word.substr(word.find_last_of('.') + 1));  // npos + 1 is 0
  for (char& c : plain) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const OtherWord& other : schema.other_words)
    if (other.word == plain) return &other;
  return nullptr;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view best = nearest(word, candidates);
  return best.empty() ? std::string() : str("; did you mean '", best, "'?");
}

}  // namespace strata
