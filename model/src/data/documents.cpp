#include <strata/model/documents.h>

#include <algorithm>
#include <array>

#include <strata/runtime/str.h>

namespace strata {
namespace {

// Read as text these would be trained on as noise. .json is text, but a file with records should be JSONL.
constexpr std::array<std::string_view, 12> kOtherFormats = {
    ".json", ".csv", ".tsv", ".parquet", ".arrow", ".gz", ".zst", ".xz", ".bz2", ".zip", ".npy", ".bin"};

std::string_view suffix(std::string_view path) noexcept {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot);
}

}  // namespace

std::string_view to_string(SourceKind kind) noexcept {
  switch (kind) {
    case SourceKind::text:
      return "text";
    case SourceKind::jsonl_text:
      return "text records";
    case SourceKind::completions:
      return "prompts and completions";
    case SourceKind::messages:
      return "conversations";
    case SourceKind::pairs:
      return "pairs";
  }
  return "";
}

bool is_jsonl(std::string_view path) noexcept {
  return suffix(path) == ".jsonl" || suffix(path) == ".ndjson";
}

Status check_source_name(std::string_view path) {
  std::string has(suffix(path));
  std::transform(has.begin(), has.end(), has.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (std::find(kOtherFormats.begin(), kOtherFormats.end(), has) == kOtherFormats.end()) return {};
  return Status::error(
      Code::unsupported,
      str(path, ": ", has, " is not supported; data must be text, or records in a .jsonl file"));
}

std::string Document::text() const {
  std::string all = chat.text;
  for (const Segment& segment : segments) all += segment.text;
  return all;
}

}  // namespace strata
