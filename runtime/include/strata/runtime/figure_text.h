#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

// Figures as people write them: three digits and a prefix.

namespace strata {

/// Text of its own, which nobody allocates: a step's progress is printed with it.
class Figure {
 public:
  /// `unit` "B": "32 MiB", "1.25 GiB"; "s": "12.5 ms", "32 us"; any other, which is not written: "45.1 k"
  /// from ten thousand on, and four digits below ("0.6931"). A value that is not finite is "-".
  explicit Figure(double value, std::string_view unit = {}) noexcept;
  std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, 32> text_{};
  std::size_t size_ = 0;
};

inline std::string figure_text(double value, std::string_view unit) {
  return std::string(Figure(value, unit).view());
}

}  // namespace strata
