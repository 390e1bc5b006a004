#include "cuda/gemm/gemm_algorithms.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <strata/runtime/str.h>

#include "cuda/field_reader.h"

namespace strata::kernels::detail {
namespace {

constexpr std::string_view kHeader =
    "# trans_a trans_b bias dtype [b_dtype] c_dtype m n k lda ldb ldc a_align b_align c_align workspace "
    "algorithm[8]";

// `differ`: whether the line has a second dtype, because the dtypes of A and B differ.
std::optional<GemmAlgorithm> parse_line(std::string_view line, bool differ) {
  FieldReader fields(line);
  GemmAlgorithm choice;
  GemmKey& key = choice.of;
  for (bool* flag : {&key.trans_a, &key.trans_b, &key.has_bias}) *flag = fields.flag();
  key.dtype = fields.dtype();
  key.b_dtype = differ ? fields.dtype() : key.dtype;
  key.c_dtype = fields.dtype();
  for (std::int64_t* size : {&key.m, &key.n, &key.k, &key.lda, &key.ldb, &key.ldc})
    *size = fields.number<std::int64_t>();
  for (std::uint32_t* align : {&key.a_align, &key.b_align, &key.c_align})
    *align = fields.number<std::uint32_t>();
  key.workspace_bytes = fields.number<std::uint64_t>();
  for (std::uint64_t& part : choice.algorithm) part = fields.number<std::uint64_t>(16);
  return fields.is_done() ? std::optional(choice) : std::nullopt;
}

std::string hex(std::uint64_t value) {
  char digits[16];
  const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), value, 16);
  return {digits, error == std::errc() ? end : digits};
}

std::string to_line(const GemmAlgorithm& choice) {
  const GemmKey& k = choice.of;
  std::string line = str(int{k.trans_a}, " ", int{k.trans_b}, " ", int{k.has_bias}, " ", to_string(k.dtype),
                         k.b_dtype == k.dtype ? std::string() : str(" ", to_string(k.b_dtype)), " ",
                         to_string(k.c_dtype), " ", k.m, " ", k.n, " ", k.k, " ", k.lda, " ", k.ldb, " ",
                         k.ldc, " ", k.a_align, " ", k.b_align, " ", k.c_align, " ", k.workspace_bytes);
  for (const std::uint64_t part : choice.algorithm) line += str(" ", hex(part));
  return line;
}

}  // namespace

std::string to_text(std::vector<GemmAlgorithm> choices) {
  if (choices.empty()) return "";
  std::sort(choices.begin(), choices.end(), [](const auto& a, const auto& b) { return a.of < b.of; });
  std::string text = str(kHeader, "\n");
  for (const GemmAlgorithm& choice : choices) text += str(to_line(choice), "\n");
  return text;
}

Result<std::vector<GemmAlgorithm>> parse_gemm_algorithms(std::string_view text) {
  std::vector<GemmAlgorithm> choices;
  STRATA_TRY(for_each_line(text, "a GEMM and its algorithm", [&](std::string_view line) {
    if (line.empty() || line.front() == '#' || is_attention(line)) return true;
    std::optional<GemmAlgorithm> choice = parse_line(line, false);
    if (!choice) choice = parse_line(line, true);
    if (choice) choices.push_back(*choice);
    return choice.has_value();
  }));
  return choices;
}

}  // namespace strata::kernels::detail
