#include <strata/runtime/io/safetensors_parts.h>

#include <array>

#include <strata/runtime/str.h>

#include "io/safetensors_header.h"

namespace strata {

Result<std::unique_ptr<SafetensorsPartsWriter>> SafetensorsPartsWriter::open(
    Io& io, const std::string& path, const std::vector<TensorSpec>& specs,
    const std::map<std::string, std::string>& metadata, bool creates) {
  Result<detail::SafetensorsLayout> layout = detail::lay_out_safetensors(specs, metadata);
  if (!layout.has_value()) return layout.status().annotate(path);
  std::unique_ptr<SafetensorsPartsWriter> self(new SafetensorsPartsWriter);
  self->data_begin_ = layout->data_begin();
  self->file_bytes_ = layout->file_bytes();
  self->ends_ = std::move(layout->ends);
  const std::uint64_t header_bytes = layout->header.size();
  Digester header;
  header.update(std::as_bytes(std::span(&header_bytes, 1)));
  header.update(layout->header);
  self->header_digest_ = header.digest();
  STRATA_TRY_ASSIGN(self->file_, io.open(path, creates ? OpenMode::create : OpenMode::update));
  if (!creates) {
    STRATA_TRY_ASSIGN(const std::uint64_t size, self->file_->size());
    if (size == self->file_bytes_) return self;
    return Status::error(Code::invalid, str(path, " has ", size, " bytes, but its tensors need ",
                                            self->file_bytes_, "; another writer created it for others"));
  }
  STRATA_TRY(self->file_->allocate(self->file_bytes_).annotate(path));
  // The length stays zero until finish(): readers refuse a header of 0 bytes.
  constexpr std::array<std::byte, detail::kLengthBytes> kUnfinished{};
  STRATA_TRY(write_all(*self->file_, 0, kUnfinished));
  STRATA_TRY(write_all(*self->file_, detail::kLengthBytes, std::as_bytes(std::span(layout->header))));
  return self;
}

Result<std::unique_ptr<SafetensorsPartsWriter>> SafetensorsPartsWriter::create(
    Io& io, const std::string& path, const std::vector<TensorSpec>& specs,
    const std::map<std::string, std::string>& metadata) {
  return open(io, path, specs, metadata, true);
}

Result<std::unique_ptr<SafetensorsPartsWriter>> SafetensorsPartsWriter::join(
    Io& io, const std::string& path, const std::vector<TensorSpec>& specs,
    const std::map<std::string, std::string>& metadata) {
  return open(io, path, specs, metadata, false);
}

Status SafetensorsPartsWriter::write(std::size_t index, std::uint64_t begin,
                                     std::span<const std::byte> bytes) {
  const std::uint64_t first = index == 0 ? 0 : ends_[index - 1];
  if (begin > ends_[index] - first || bytes.size() > ends_[index] - first - begin)
    return Status::error(Code::invalid, str(file_->path(), ": ", bytes.size(), " bytes at ", begin,
                                            " of a tensor of ", ends_[index] - first));
  return write_all(*file_, data_begin_ + first + begin, bytes);
}

Status SafetensorsPartsWriter::finish() {
  const std::uint64_t header_bytes = data_begin_ - detail::kLengthBytes;
  STRATA_TRY(file_->sync());  // data first, since the length must not become durable before it
  STRATA_TRY(write_all(*file_, 0, std::as_bytes(std::span(&header_bytes, 1))));
  return file_->sync();
}

}  // namespace strata
