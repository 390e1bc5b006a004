#include <strata/model/documents.h>

#include <algorithm>
#include <array>
#include <span>

#include <strata/runtime/str.h>

namespace strata {
namespace {

// Read as text these would be trained on as noise. .json is text, but a file with records should be JSONL.
constexpr std::array<std::string_view, 10> kOtherFormats = {".json", ".parquet", ".arrow", ".gz",  ".zst",
                                                            ".xz",   ".bz2",     ".zip",   ".npy", ".bin"};
// Their columns and quotes would be trained on.
constexpr std::array<std::string_view, 2> kTables = {".csv", ".tsv"};

/// In lower case, since some systems write NOTES.JSONL.
std::string suffix(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  std::string end(dot == std::string_view::npos ? std::string_view() : name.substr(dot));
  for (char& c : end)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return end;
}

bool is_among(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
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

bool is_jsonl(std::string_view path) {
  const std::string has = suffix(path);
  return has == ".jsonl" || has == ".ndjson";
}

Status check_source_name(std::string_view path) {
  const std::string has = suffix(path);
  if (is_among(has, kTables))
    return Status::error(
        Code::unsupported,
        str(path, ": ", has,
            " is a table, not text; write its rows as records of a .jsonl file, such as {\"text\": ...} or "
            "{\"prompt\": ..., \"completion\": ...} (Python: csv.DictReader and json.dumps)"));
  if (!is_among(has, kOtherFormats)) return {};
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
