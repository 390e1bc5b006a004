#include <strata/runtime/io/safetensors.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "io/safetensors_header.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian and so is this code");
using detail::kLengthBytes;

Result<std::string> read_header(File& file, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes)
    return Status::error(Code::corrupt,
                         str(file_bytes, " bytes, a safetensors file has at least ", kLengthBytes));
  std::uint64_t header_bytes = 0;
  STRATA_TRY(read_exact(file, 0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > file_bytes - kLengthBytes)
    return Status::error(Code::corrupt, str("its header claims ", header_bytes, " bytes, the file has ",
                                            file_bytes - kLengthBytes, " after the length"));
  if (header_bytes > kSafetensorsMaxHeaderBytes)
    return Status::error(Code::invalid, str("its header has ", header_bytes, " bytes, at most ",
                                            kSafetensorsMaxHeaderBytes, " are read"));
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  STRATA_TRY(read_exact(file, kLengthBytes, std::as_writable_bytes(std::span(text))));
  return text;
}

/// Sorts by offset, and checks that the ranges have the sizes of their shapes and cover [0, data_bytes)
/// exactly.
Status check_tiling(std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.bytes) <
           std::pair(b.offset, b.bytes);  // an empty tensor precedes one that starts at the same offset
  });
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    STRATA_TRY_ASSIGN(const std::uint64_t bytes,
                      detail::safetensors_bytes(entry.name, entry.dtype, entry.shape));
    if (bytes != entry.bytes)
      return Status::error(Code::corrupt, str(detail::quoted(entry.name), ": its range has ", entry.bytes,
                                              " bytes, its shape and dtype need ", bytes));
    if (entry.offset != end)
      return Status::error(Code::corrupt, str(detail::quoted(entry.name), ": begins at ", entry.offset,
                                              ", the data before it ends at ", end));
    end = entry.offset + entry.bytes;  // cannot overflow: the end offset is one 64-bit number in the file
  }
  if (end != data_bytes)
    return Status::error(Code::corrupt,
                         str("its tensors end at ", end, ", the data has ", data_bytes, " bytes"));
  return {};
}

}  // namespace

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(Io& io, const std::string& path,
                                                               OpenMode mode) {
  auto self = std::unique_ptr<SafetensorsFile>(new SafetensorsFile);
  STRATA_TRY_ASSIGN(self->file_, io.open(path, mode));
  STRATA_TRY_ASSIGN(self->file_bytes_, self->file_->size());
  const auto fill = [&]() -> Status {
    STRATA_TRY_ASSIGN(const std::string text, read_header(*self->file_, self->file_bytes_));
    STRATA_TRY_ASSIGN(detail::SafetensorsHeader header, detail::parse_safetensors_header(text));
    self->data_begin_ = kLengthBytes + text.size();
    self->entries_ = std::move(header.entries);
    self->metadata_ = std::move(header.metadata);
    STRATA_TRY(check_tiling(self->entries_, self->file_bytes_ - self->data_begin_));
    STRATA_TRY_ASSIGN(self->by_name_, detail::sort_names(self->entries_));
    return {};
  };
  STRATA_TRY(fill().annotate(path));
  return self;
}

Result<Digest> SafetensorsFile::header_digest() const {
  std::vector<std::byte> header(static_cast<std::size_t>(data_begin_));
  STRATA_TRY(read_exact(*file_, 0, header));
  return digest_of(header);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](std::uint32_t i, std::string_view wanted) { return entries_[i].name < wanted; });
  return at != by_name_.end() && entries_[*at].name == name ? &entries_[*at] : nullptr;
}

Status SafetensorsFile::read(std::string_view name, std::span<std::byte> into) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr)
    return Status::error(Code::not_found, str(file_->path(), ": no tensor ", detail::quoted(name)));
  if (into.size() != entry->bytes)
    return Status::error(Code::invalid, str(detail::quoted(name), ": ", entry->bytes, " bytes stored, ",
                                            into.size(), " given"));
  return read_range(*entry, 0, into);
}

Status SafetensorsFile::read_range(const SafetensorsEntry& entry, std::uint64_t begin,
                                   std::span<std::byte> into) const {
  if (begin > entry.bytes || into.size() > entry.bytes - begin)
    return Status::error(Code::invalid, str(detail::quoted(entry.name), ": ", into.size(),
                                            " bytes requested at ", begin, " of a tensor of ", entry.bytes));
  const Status status = read_exact(*file_, data_begin_ + entry.offset + begin, into);
  return status ? status : status.annotate(str("reading tensor ", detail::quoted(entry.name)));
}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(
    Io& io, const std::string& path, std::vector<TensorSpec> specs,
    const std::map<std::string, std::string>& metadata) {
  Result<detail::SafetensorsLayout> layout = detail::lay_out_safetensors(specs, metadata);
  if (!layout.has_value()) return layout.status().annotate(path);
  const std::string& text = layout->header;
  auto self = std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter);
  self->ends_ = std::move(layout->ends);
  self->specs_ = std::move(specs);
  self->data_begin_ = layout->data_begin();
  self->data_bytes_ = self->ends_.empty() ? 0 : self->ends_.back();
  STRATA_TRY_ASSIGN(self->file_, io.open(path, OpenMode::create));
  STRATA_TRY(self->file_->allocate(self->file_bytes()).annotate(path));
  // The length is zero until finish(): readers refuse a header of 0 bytes because it does not begin with '{'.
  constexpr std::array<std::byte, kLengthBytes> kUnfinished{};
  STRATA_TRY(write_all(*self->file_, 0, kUnfinished));
  STRATA_TRY(write_all(*self->file_, kLengthBytes, std::as_bytes(std::span(text))));
  const std::uint64_t header_bytes = text.size();
  self->digester_.update(std::as_bytes(std::span(&header_bytes, 1)));
  self->digester_.update(text);
  return self;
}

Status SafetensorsWriter::remember_failure(Status status) {
  if (!status && failed_) failed_ = status;
  return status;
}

std::string SafetensorsWriter::incomplete_tensor() const {
  const auto at = std::upper_bound(ends_.begin(), ends_.end(), written_bytes_);
  return detail::quoted(specs_[static_cast<std::size_t>(at - ends_.begin())].name);
}

Status SafetensorsWriter::append(std::span<const std::byte> piece) {
  STRATA_TRY(failed_);
  if (piece.size() > data_bytes_ - written_bytes_)
    return remember_failure(Status::error(
        Code::invalid, str(file_->path(), ": ", piece.size(), " bytes given, ", data_bytes_ - written_bytes_,
                           " of the declared ", data_bytes_, " are left")));
  STRATA_TRY(remember_failure(write_all(*file_, data_begin_ + written_bytes_, piece)));
  digester_.update(piece);
  written_bytes_ += piece.size();
  return {};
}

Status SafetensorsWriter::finish() {
  STRATA_TRY(failed_);
  if (finished_) return Status::error(Code::invalid, str(file_->path(), ": is already finished"));
  if (written_bytes_ != data_bytes_)
    return remember_failure(
        Status::error(Code::invalid, str(file_->path(), ": ", written_bytes_, " of ", data_bytes_,
                                         " bytes given; tensor ", incomplete_tensor(), " is not complete")));
  const std::uint64_t header_bytes = data_begin_ - kLengthBytes;
  STRATA_TRY(
      remember_failure(file_->sync()));  // data first, since the length must not become durable before it
  STRATA_TRY(remember_failure(write_all(*file_, 0, std::as_bytes(std::span(&header_bytes, 1)))));
  STRATA_TRY(remember_failure(file_->sync()));
  finished_ = true;
  return {};
}

std::string SafetensorsWriter::digest_hex() const {
  STRATA_ASSERT(finished_, "the digest of a file that is not finished");
  return to_hex(digester_.digest());
}

}  // namespace strata
