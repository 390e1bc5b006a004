#include <strata/model/hf/folder.h>

#include <algorithm>
#include <set>

#include <strata/model/hf/config.h>
#include <strata/model/hf/explain_folder.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "family/family.h"
#include "folder_files.h"
#include "gguf/read/model_file.h"
#include "hf/shard_files.h"
#include "hf/config/text.h"
#include "hf/text_model.h"
#include "hf/whole/other_names.h"
#include "hf/stored/stored_forms.h"
#include <strata/text/model_files.h>

namespace strata {
namespace {

constexpr std::uint64_t kConfigLimit = 16 << 20;
constexpr std::size_t kProblemsShown = 20;

class Problems {
 public:
  void add(const std::string& what) {
    if (++n_ <= kProblemsShown) text_ += str(text_.empty() ? "" : "\n", what);
  }
  Status status() const {
    if (n_ == 0) return {};
    return Status::error(Code::corrupt,
                         n_ <= kProblemsShown ? text_ : str(text_, "\nand ", n_ - kProblemsShown, " more"));
  }

 private:
  std::string text_;
  std::size_t n_ = 0;
};

}  // namespace

HfFolder::HfFolder() = default;
HfFolder::~HfFolder() = default;

Result<std::unique_ptr<HfFolder>> HfFolder::open(Io& io, const std::string& path) {
  std::unique_ptr<HfFolder> folder(new HfFolder);
  folder->path_ = path;
  if (is_gguf_file(io, path)) {
    STRATA_TRY(folder->open_gguf(io));
    return folder;
  }
  const std::string config_path = path + "/config.json";
  if (!io.exists(config_path)) STRATA_TRY(explain_hf_folder(io, path));
  STRATA_TRY_ASSIGN(const std::string text, detail::read_in_hf_folder(io, path, "config.json", kConfigLimit));
  auto config = decoder_from_hf_config(text);
  if (!config.has_value()) return config.status().annotate(config_path);
  folder->config_ = *std::move(config);
  folder->config_text_ = text;
  folder->whole_ = detail::whole_model_of(*detail::parse_config_json(text));
  folder->tensors_ = hf_tensors(folder->config_);
  STRATA_TRY(folder->open_files(io));
  folder->settle_stacked_experts();
  STRATA_TRY(folder->settle_tied_head().annotate(path));
  STRATA_TRY(folder->locate_tensors(true).annotate(path));
  return folder;
}

Result<DecoderConfig> HfFolder::config_of(Io& io, const std::string& path) {
  HfFolder folder;
  folder.path_ = path;
  if (is_gguf_file(io, path)) {
    STRATA_TRY(folder.open_gguf(io));
    return folder.config_;
  }
  STRATA_TRY_ASSIGN(const std::string text, detail::read_in_hf_folder(io, path, "config.json", kConfigLimit));
  STRATA_TRY_ASSIGN(folder.config_, decoder_from_hf_config(text));
  folder.whole_ = detail::whole_model_of(*detail::parse_config_json(text));
  folder.tensors_ = hf_tensors(folder.config_);
  // Files that cannot be read are the business of open().
  if ((folder.config_.tied_head || folder.config_.experts.n > 0) && folder.open_files(io).is_ok()) {
    folder.settle_stacked_experts();
    (void)folder.settle_tied_head().is_ok();
  }
  return folder.config_;
}

Result<std::unique_ptr<HfFolder>> HfFolder::open_tensors(Io& io, const std::string& file,
                                                         const DecoderConfig& config) {
  std::unique_ptr<HfFolder> folder(new HfFolder);
  folder->path_ = file;
  folder->config_ = config;
  folder->tensors_ = hf_tensors(config);
  STRATA_TRY_ASSIGN(std::unique_ptr<SafetensorsFile> opened, SafetensorsFile::open(io, file));
  folder->files_.push_back(std::move(opened));
  STRATA_TRY(folder->locate_tensors(false).annotate(file));
  return folder;
}

Status HfFolder::open_gguf(Io& io) {
  STRATA_TRY_ASSIGN(gguf_, detail::GgufModel::open(io, path_));
  config_ = gguf_->config();
  config_text_ = gguf_->config_text();
  tensors_ = gguf_->tensors();
  for (const HfTensor& tensor : tensors_)
    locations_[tensor.name] = {.dtype = gguf_->dtype(tensor.name), .name = tensor.name};
  return {};
}

bool HfFolder::has(std::string_view param) const noexcept {
  return std::all_of(tensors_.begin(), tensors_.end(), [&](const HfTensor& tensor) {
    return tensor.param != param || locations_.count(tensor.name) != 0;
  });
}

bool HfFolder::has_param(std::string_view param) const noexcept {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const HfTensor& tensor) { return tensor.param == param; });
}

Status HfFolder::open_files(Io& io) {
  STRATA_TRY_ASSIGN(files_, detail::open_shards(io, path_));
  return {};
}

// Some files omit the first part ("transformer.") of every tensor name, others of none. The second tensor
// decides where there is no token embedding.
bool HfFolder::has_bare_names() const {
  const auto there = [&](std::string_view wanted) { return location_of(wanted).entry != nullptr; };
  for (const std::size_t i : {0, 1}) {
    const std::string_view name = tensors_[i].name;
    if (there(name)) return false;
    if (there(name.substr(name.find('.') + 1))) return true;
  }
  return false;
}

HfFolder::TensorLocation HfFolder::location_of(std::string_view name) const {
  const std::string usual = whole_ != nullptr ? whole_->in_files(name) : std::string(name);
  const std::string saved = whole_ != nullptr ? whole_->in_saved_files(name) : usual;
  for (const auto& file : files_) {
    const SafetensorsEntry* entry = file->find(usual);
    if (entry == nullptr) entry = file->find(saved);
    if (entry != nullptr)
      return {file.get(), entry, dtype_from_safetensors(entry->dtype).value_or(DType::f32), nullptr,
              entry->name};
  }
  return {};
}

// transformers writes one form of experts or the other, as it is asked.
void HfFolder::settle_stacked_experts() {
  const detail::HfNames& names = detail::family_of(config_).hf.names;
  if (config_.experts.n == 0 || names.stacked_transposed || names.experts.empty()) return;
  DecoderConfig stacked = config_;
  stacked.experts.stacked_files = true;
  std::vector<HfTensor> tensors = hf_tensors(stacked);
  const auto is_there = [&](const HfTensor& tensor) {
    const std::string_view name = tensor.name;
    return tensor.of_experts && tensor.shape.size() == 3 &&
           (location_of(name).entry != nullptr ||
            location_of(name.substr(name.find('.') + 1)).entry != nullptr);
  };
  if (std::none_of(tensors.begin(), tensors.end(), is_there)) return;
  config_ = std::move(stacked);
  tensors_ = std::move(tensors);
}

// The rules of transformers' tie_weights(): safetensors' save_model() keeps of a tied pair the name that
// sorts first, the head; and a head that was trained by itself stays what it is, whatever config.json says.
Status HfFolder::settle_tied_head() {
  if (!config_.tied_head || config_.scores) return {};
  HfTensor& tokens = tensors_.front();
  const std::string name = has_bare_names() ? tokens.name.substr(tokens.name.find('.') + 1) : tokens.name;
  const TensorLocation embedding = location_of(name), head = location_of(hf_head_name());
  const auto unreadable = [](const TensorLocation& location) {
    return location.entry != nullptr && dtype_from_safetensors(location.entry->dtype) != location.dtype;
  };
  if (head.entry == nullptr || unreadable(embedding) || unreadable(head))
    return {};  // locate_tensors() reports them
  if (embedding.entry == nullptr) {
    tokens.name = hf_head_name();
    return {};
  }
  if (embedding.entry->shape != head.entry->shape) return {};  // locate_tensors() reports it
  STRATA_TRY_ASSIGN(config_.tied_head, are_equal(embedding, head));
  if (!config_.tied_head) tensors_ = hf_tensors(config_);
  return {};
}

Result<bool> HfFolder::are_equal(const TensorLocation& one, const TensorLocation& other) const {
  std::uint64_t n = 1;
  for (const std::uint64_t extent : one.entry->shape) n *= extent;
  std::vector<float> values, others;
  for (std::uint64_t at = 0; at < n; at += static_cast<std::uint64_t>(detail::kElemsAtOnce)) {
    const auto size =
        static_cast<std::size_t>(std::min(static_cast<std::uint64_t>(detail::kElemsAtOnce), n - at));
    values.resize(size);
    others.resize(size);
    STRATA_TRY(read_block(one, static_cast<std::int64_t>(at), values));
    STRATA_TRY(read_block(other, static_cast<std::int64_t>(at), others));
    if (!std::equal(values.begin(), values.end(), others.begin())) return false;
  }
  return true;
}

namespace {

/// What a tensor of a matrix, or of those of all experts, stands for. Its shape and layout become those of
/// quantized matrices, which are [out, in] also where the family has transposed ones.
detail::StoredWeight quantized_weight(HfTensor& tensor) {
  using Layout = HfTensor::Layout;
  const bool in_turn = tensor.layout == Layout::stack_in_turn,
             transposed =
                 in_turn || tensor.layout == Layout::transposed || tensor.layout == Layout::stack_transposed;
  const std::size_t last = tensor.shape.size() - 1;
  if (transposed) {
    std::swap(tensor.shape[last - 1], tensor.shape[last]);
    tensor.layout = Layout::rows;
  }
  const auto rows = static_cast<std::int64_t>(tensor.shape[last - 1]);
  kernels::QuantizedMatrix shape = {
      kernels::WeightFormat::full, static_cast<std::int64_t>(tensor.shape[last]), {rows}};
  if (last == 2) {
    shape.count = static_cast<std::int64_t>(tensor.shape[0]);
    shape.align = kernels::QuantizedMatrix::kExpertAlign;
  }
  if (in_turn) shape.rows_of = {rows / 2, rows / 2};
  return {tensor.name, shape, in_turn};
}

}  // namespace

// Opens the matrices that are quantized, and returns the names of all tensors that belong to them.
std::set<std::string, std::less<>> HfFolder::open_quantized(const std::function<void(std::string)>& problem) {
  const auto find = [&](const std::string& name) {
    const TensorLocation found = location_of(name);
    return detail::StoredTensor{found.file, found.entry};
  };
  const bool only_experts = config_.experts.only_quantized;
  std::set<std::string, std::less<>> names;
  std::set<kernels::WeightFormat> formats;
  bool by_head = false;
  for (HfTensor& tensor : tensors_) {
    const bool is_quantizable = tensor.param.starts_with("layers.") && tensor.shape.size() >= 2 &&
                                ((tensor.is_linear && !only_experts) || tensor.of_experts);
    if (!is_quantizable) continue;
    const detail::StoredForm* const form = detail::stored_form_of(tensor.name, find);
    if (form == nullptr) {
      formats.insert(kernels::WeightFormat::full);
      continue;
    }
    std::vector<std::string> of_matrix;
    const detail::StoredWeight weight = quantized_weight(tensor);
    if (tensor.shape.size() > 2 && !form->has_stacks) {
      problem(str(tensor.name, " is stored as one matrix, and the model has ", weight.shape.count,
                  " matrices of experts in it"));
      continue;
    }
    auto opened = form->open(weight, find, of_matrix);
    names.insert(of_matrix.begin(), of_matrix.end());
    if (!opened.has_value()) {
      problem(std::string(opened.status().message()));
      continue;
    }
    by_head = by_head || is_by_head(tensor.layout);
    formats.insert((*opened)->format());
    quantized_[tensor.name] = *std::move(opened);
  }
  if (formats.size() == 1) quantized_to_ = *formats.begin();
  // Groups of scales do not survive another order of rows.
  if (by_head && quantized_to_ == kernels::WeightFormat::nf4_dq) quantized_to_ = kernels::WeightFormat::nf4;
  return names;
}

Status HfFolder::locate_tensors(bool must_be_complete) {
  Problems problems;
  const std::string head(hf_head_name());
  const bool bare = has_bare_names();
  for (HfTensor& tensor : tensors_)
    if (bare && tensor.name != head) tensor.name.erase(0, tensor.name.find('.') + 1);
  const auto of_quantized = open_quantized([&](const std::string& what) { problems.add(what); });
  for (const auto& file : files_)
    for (const SafetensorsEntry& entry : file->entries()) {
      if (detail::is_of_others(entry.name, whole_, config_)) continue;
      const std::string name = whole_ != nullptr ? whole_->in_text_model(entry.name) : entry.name;
      const auto dtype = dtype_from_safetensors(entry.dtype);
      const bool readable = (dtype && is_stored_dtype(*dtype)) || of_quantized.count(name) != 0;
      if (is_hf_buffer(name)) continue;
      if (!readable) problems.add(str(entry.name, " is ", entry.dtype, "; F32, BF16 and F16 can be read"));
      if (!locations_
               .try_emplace(
                   name, TensorLocation{file.get(), &entry, dtype.value_or(DType::f32), nullptr, entry.name})
               .second)
        problems.add(str(entry.name, " is in two files"));
    }
  std::set<std::string, std::less<>> expected = of_quantized;
  // A form of files may have no tensor of the matrix's own name.
  for (const auto& [name, matrix] : quantized_) {
    TensorLocation& location = locations_[name];
    location.name = name;
    location.quantized = matrix.get();
  }
  const auto expect = [&](const std::string& name, const std::vector<std::uint64_t>& shape) {
    expected.insert(name);
    const auto at = locations_.find(name);
    if (at == locations_.end()) {
      if (must_be_complete) problems.add(str(name, " is missing"));
    } else if (at->second.quantized == nullptr && of_quantized.count(name) == 0 &&
               at->second.entry->shape != shape) {
      problems.add(str(name, " has the shape ", detail::shape_text(at->second.entry->shape),
                       ", but the model needs ", detail::shape_text(shape)));
    }
  };
  for (const HfTensor& tensor : tensors_) expect(tensor.name, tensor.shape);
  for (const HfTensor& tensor : tensors_) {
    const auto is_there = [&](const HfTensor& other) {
      return other.param == tensor.param && locations_.count(other.name) != 0;
    };
    if (!must_be_complete && locations_.count(tensor.name) == 0 &&
        std::any_of(tensors_.begin(), tensors_.end(), is_there))
      problems.add(str(tensor.name, " is missing, and other parts of ", tensor.param, " are there"));
  }
  if (config_.tied_head && locations_.count(head) != 0) expect(head, tensors_.front().shape);
  for (const auto& [name, location] : locations_)
    if (expected.count(name) == 0) problems.add(str(name, " is not a tensor of this model"));
  return problems.status();
}

bool HfFolder::is_all(DType dtype) const noexcept {
  return std::all_of(tensors_.begin(), tensors_.end(), [&](const HfTensor& tensor) {
    const auto at = locations_.find(tensor.name);
    return at == locations_.end() || at->second.dtype == (tensor.is_f32 ? DType::f32 : dtype);
  });
}

}  // namespace strata
