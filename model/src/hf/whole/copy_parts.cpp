#include "hf/whole/copy_parts.h"

#include <algorithm>
#include <array>

#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/text/model_files.h>

#include "hf/folder_files.h"
#include "hf/shard_files.h"

namespace strata::detail {
namespace {

constexpr std::size_t kCopyBytes = kMiB;

constexpr std::array<std::string_view, 11> kOfTokens = {"tokenizer.json",
                                                        "tokenizer_config.json",
                                                        "special_tokens_map.json",
                                                        "added_tokens.json",
                                                        "vocab.json",
                                                        "vocab.txt",
                                                        "merges.txt",
                                                        "tokenizer.model",
                                                        "spiece.model",
                                                        "generation_config.json",
                                                        "sentencepiece.bpe.model"};

// Where the record's folder is not, a run's model.from says where it was moved to.
Status is_gone(const OtherParts& parts) {
  return Status::error(
      Code::not_found,
      str(parts.folder, " does not exist; the export needs ", describe(parts),
          ", from the folder that the model began with: name its new place with model.from=FOLDER, or write "
          "the text model alone with --text-only"));
}

Status changed(const OtherParts& parts, std::string_view what, std::string_view difference) {
  return Status::error(Code::corrupt,
                       str(parts.folder, ": ", what, " ", difference,
                           "; it is copied as it was when the run began: restore the folder, or write the "
                           "text model alone with --text-only"));
}

}  // namespace

bool is_other_file(std::string_view name) {
  if (name.starts_with('.') || name.ends_with(".index.json") ||
      std::find(kOfTokens.begin(), kOfTokens.end(), name) != kOfTokens.end())
    return false;
  for (const std::string_view beginning : {"LICENSE", "NOTICE", "USE_POLICY"})
    if (name.starts_with(beginning)) return true;
  for (const std::string_view end : {".json", ".jinja", ".txt", ".model", ".py"})
    if (name.ends_with(end)) return true;
  return false;
}

Result<std::string> stream_tensor(const std::vector<std::unique_ptr<SafetensorsFile>>& shards,
                                  const std::string& name, const ByteSink& into) {
  std::vector<std::byte> block;
  for (const auto& file : shards) {
    const SafetensorsEntry* const entry = file->find(name);
    if (entry == nullptr) continue;
    Digester digester;
    for (std::uint64_t at = 0; at < entry->bytes; at += kCopyBytes) {
      block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, entry->bytes - at)));
      STRATA_TRY(file->read_range(*entry, at, block));
      digester.update(block);
      STRATA_TRY(into(block));
    }
    return to_hex(digester.digest());
  }
  return Status::error(Code::not_found, str("there is no tensor ", name));
}

Result<PartsSource> PartsSource::open(Io& io, const OtherParts& parts) {
  PartsSource source(parts);
  if (!io.exists(parts.folder)) return is_gone(parts);
  STRATA_TRY_ASSIGN(source.shards_, open_shards(io, parts.folder));
  for (const OtherTensor& tensor : parts.tensors) STRATA_TRY(source.check_tensor(tensor));
  for (const OtherFile& file : parts.files)
    if (!io.exists(str(parts.folder, "/", file.name))) return changed(parts, file.name, "is missing");
  return source;
}

StoredTensor PartsSource::find(const std::string& name) const {
  for (const auto& file : shards_)
    if (const SafetensorsEntry* const entry = file->find(name)) return {file.get(), entry};
  return {};
}

Status PartsSource::check_tensor(const OtherTensor& tensor) const {
  const SafetensorsEntry* const entry = find(tensor.name).entry;
  if (entry == nullptr) return changed(*parts_, tensor.name, "is missing");
  if (entry->dtype == tensor.dtype && entry->shape == tensor.shape) return {};
  return changed(*parts_, tensor.name,
                 str("is ", entry->dtype, " ", shape_text(entry->shape), ", and was ", tensor.dtype, " ",
                     shape_text(tensor.shape)));
}

Status PartsSource::check_digest(std::string_view what, const std::string& found,
                                 const std::string& recorded) const {
  if (found == recorded) return {};
  return changed(*parts_, what, str("has the digest ", found, ", and had ", recorded));
}

Status PartsSource::copy_tensor(const OtherTensor& tensor, const ByteSink& into) const {
  STRATA_TRY_ASSIGN(const std::string found, stream_tensor(shards_, tensor.name, into));
  return check_digest(tensor.name, found, tensor.digest);
}

Status PartsSource::check_tensor_bytes(const OtherTensor& tensor) const {
  return copy_tensor(tensor, [](std::span<const std::byte>) { return Status::ok(); });
}

Status PartsSource::check_file(Io& io, const OtherFile& file) const {
  STRATA_TRY_ASSIGN(const std::string from, file_in_hf_folder(parts_->folder, file.name));
  STRATA_TRY_ASSIGN(const FileDigest found, digest_file(io, from));
  return check_digest(file.name, to_hex(found.digest), file.digest);
}

Status PartsSource::copy_file(Io& io, const OtherFile& file, const std::string& path) const {
  STRATA_TRY_ASSIGN(const std::string from, file_in_hf_folder(parts_->folder, file.name));
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> source, io.open(from, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t bytes, source->size());
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> copy, io.open(path, OpenMode::create));
  Digester digester;
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < bytes; at += kCopyBytes) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, bytes - at)));
    STRATA_TRY(read_exact(*source, at, block));
    digester.update(block);
    STRATA_TRY(write_all(*copy, at, block));
  }
  STRATA_TRY(check_digest(file.name, to_hex(digester.digest()), file.digest));
  return copy->sync();
}

}  // namespace strata::detail
