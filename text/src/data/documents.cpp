#include <strata/text/documents.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include <strata/text/text_check.h>
#include <strata/runtime/str.h>

#include "data/file_splits.h"
#include "data/records/byte_source.h"

namespace strata {
namespace {

// Read as text these would be trained on as noise.
constexpr std::array<std::string_view, 12> kOtherFormats = {
    ".arrow", ".zst", ".xz", ".bz2", ".zip", ".tar", ".tgz", ".7z", ".npy", ".bin", ".pkl", ".safetensors"};
// Their columns and quotes would be trained on.
constexpr std::array<std::string_view, 2> kTables = {".csv", ".tsv"};
constexpr std::array<std::string_view, 3> kRecords = {".jsonl", ".ndjson", ".json"};
constexpr std::size_t kNamedFiles = 5;  // in the note about a folder

/// In lower case, since some systems write NOTES.JSONL, and without ".gz".
std::string suffix(std::string_view path) {
  const std::string_view name = detail::without_gz(path.substr(path.rfind('/') + 1));
  const std::size_t dot = name.rfind('.');
  std::string end(dot == std::string_view::npos ? std::string_view() : name.substr(dot));
  for (char& c : end)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return end;
}

bool is_among(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether the name is that of a description of data, as datasets and LLaMA-Factory put it beside them.
bool describes_data(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"dataset_info.json", "dataset_infos.json",
                                                      "dataset_dict.json", "state.json"};
  return is_among(name, kNames);
}

std::string named(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamedFiles; ++i) text += str(i == 0 ? "" : ", ", names[i]);
  return names.size() > kNamedFiles ? str(text, ", and ", names.size() - kNamedFiles, " more") : text;
}

}  // namespace

bool has_records(std::string_view path) { return is_among(suffix(path), kRecords); }

Status check_source_name(std::string_view path) {
  const std::string has = suffix(path);
  if (is_among(has, kTables))
    return Status::error(
        Code::unsupported,
        str(path, ": ", has,
            " is a table, not text; write its rows as records of a .jsonl file, such as {\"text\": ...} or "
            "{\"prompt\": ..., \"completion\": ...} (Python: csv.DictReader and json.dumps)"));
  if (has == ".parquet")
    return Status::error(Code::unsupported,
                         str(path, ": ", has,
                             " is not supported; write it as a .jsonl file (Python: pandas.read_parquet(FILE)"
                             ".to_json(OUT, orient=\"records\", lines=True))"));
  if (!is_among(has, kOtherFormats)) return {};
  return Status::error(Code::unsupported,
                       str(path, ": ", has,
                           " is not supported; data must be text, or records in a .jsonl or .json file, each "
                           "also compressed as .gz"));
}

Result<std::string> read_source_beginning(Io& io, const std::string& path, std::uint64_t limit_bytes) {
  STRATA_TRY(check_source_name(path));
  STRATA_TRY_ASSIGN(const std::unique_ptr<detail::ByteSource> source, detail::ByteSource::open(io, path));
  std::string text;
  while (text.size() < limit_bytes) {
    STRATA_TRY_ASSIGN(const std::string_view block, source->next());
    if (block.empty()) break;
    text += block;
  }
  STRATA_TRY(check_byte_order_mark(path, text));
  text.erase(0, text.size() - without_byte_order_mark(text).size());
  if (text.size() > limit_bytes) text.resize(static_cast<std::size_t>(limit_bytes));
  return text;
}

Result<std::string> read_source_text(Io& io, const std::string& path, std::uint64_t limit_bytes) {
  STRATA_TRY_ASSIGN(std::string text, read_source_beginning(io, path, limit_bytes + 1));
  if (text.size() > limit_bytes)
    return Status::error(Code::invalid, str(path, ": longer than ", limit_bytes, " bytes"));
  STRATA_TRY(check_text(path, text));
  return text;
}

Result<std::vector<std::string>> data_files_of(Io& io, const std::string& folder, DataSplit split,
                                               const std::function<void(std::string)>& note) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(folder));
  std::vector<std::string> records, texts, others, files;
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    const bool is_data = !describes_data(name);
    (is_data && has_records(name)        ? records
     : is_data && suffix(name) == ".txt" ? texts
                                         : others)
        .push_back(name);
  }
  std::vector<std::string>& data = records.empty() ? texts : records;
  if (data.empty())
    return Status::error(Code::invalid,
                         str(folder, ": the folder has no .jsonl, .json or .txt file (nor one with .gz)",
                             others.empty() ? "" : str("; it has ", named(others))));
  if (!records.empty()) others.insert(others.end(), texts.begin(), texts.end());
  std::sort(others.begin(), others.end());
  const std::string base = folder.ends_with('/') ? folder : folder + "/";
  const detail::FolderSplit parts = detail::split_by_name(std::move(data), split);
  data = parts.read;
  STRATA_TRY(detail::check_no_file_twice(folder, data));
  if (!others.empty()) note(str(folder, ": not read: ", named(others)));
  if (!parts.left_out.empty())
    note(split == DataSplit::train
             ? str(folder, ": not trained on, by their names: ", named(parts.left_out), "; data.val=", folder,
                   " evaluates on such, and data.train=FILE,... trains on any")
             : str(folder, ": not evaluated on: ", named(parts.left_out), "; name files to choose others"));
  for (const std::string& name : data) files.push_back(base + name);
  return files;
}

Result<DocumentTokens> encode_document(const Tokenizer& tokenizer, const Document& document) {
  DocumentTokens out;
  const auto append = [&](std::span<const std::int32_t> ids, bool loss_mask) {
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.loss_mask.resize(out.ids.size(), loss_mask);
  };
  const std::int32_t end = tokenizer.markers().end;
  if (!document.chat.text.empty()) {
    STRATA_TRY_ASSIGN(ChatTokens chat, encode_chat(tokenizer, document.chat));
    out = {std::move(chat.ids), std::move(chat.loss_mask)};
    // The template has ended the text, so that no further token has to.
    if (chat.is_ended) return out;
  } else {
    const bool begins_in_loss = document.segments.empty() || document.segments.front().loss_mask;
    if (tokenizer.markers().encloses) append(tokenizer.spec().prefix, begins_in_loss);
    // A completion goes on where the prompt ends, without a space of the tokenizer's own before it. Both are
    // encoded by themselves, so that the prompt has the tokens that it has for a generation.
    TextPosition place = TextPosition::begin;
    for (const Segment& segment : document.segments) {
      append(tokenizer.encode(segment.text, SpecialTokens::as_text, AddSpecialTokens::no, place),
             segment.loss_mask);
      place = TextPosition::inside;
    }
  }
  if (end >= 0) append(std::span(&end, 1), document.end_loss_mask);
  return out;
}

std::string Document::text() const {
  std::string all = chat.text;
  for (const Segment& segment : segments) all += segment.text;
  return all;
}

}  // namespace strata
