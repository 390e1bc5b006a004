#include <strata/infer/row_adapters.h>

#include <algorithm>
#include <variant>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// A folder whose name contains '=' is written as ./name.
bool has_name(const std::string& argument, Io& io) {
  return argument.find('=') < argument.find('/') && !io.exists(argument);
}

Result<std::unique_ptr<PeftFolder>> open_lora(Io& io, const std::string& path, const DecoderConfig& config) {
  STRATA_TRY_ASSIGN(std::unique_ptr<PeftFolder> folder, PeftFolder::open(io, path, config));
  const auto* const lora = std::get_if<LoraSettings>(&folder->settings());
  const auto is_of_layer = [](const LoraTarget& target) { return target.lora.place == LoraPlace::linear; };
  const auto& targets = folder->targets();
  const bool is_whole = lora != nullptr && (!lora->save.empty() || !lora->tokens.empty() ||
                                            lora->bias != LoraSettings::Bias::none ||
                                            !std::all_of(targets.begin(), targets.end(), is_of_layer));
  if (is_whole)
    return Status::error(Code::unsupported,
                         str(path,
                             " changes embeddings, the head, gates, experts, biases or whole modules; texts "
                             "of one batch can only "
                             "choose among adapters of matrices in blocks: give it alone, --adapter ",
                             path));
  if (lora != nullptr && !lora->dora) return folder;
  return Status::error(Code::unsupported,
                       str(path, " has ", lora == nullptr ? describe(folder->settings()) : "DoRA",
                           "; texts of one batch can only choose among adapters of LoRA"));
}

}  // namespace

Result<AdapterFolders> adapter_folders(std::span<const std::string> arguments, Io& io) {
  AdapterFolders folders;
  if (arguments.size() == 1 && !has_name(arguments.front(), io)) {
    folders.only = arguments.front();
    return folders;
  }
  std::string problems;
  for (const std::string& argument : arguments) {
    if (!has_name(argument, io)) {
      problems +=
          str("\n  --adapter ", argument, ": each of several adapters needs a name, as in NAME=", argument);
      continue;
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals), path = argument.substr(equals + 1);
    if (!is_name(name))
      problems += str("\n  --adapter ", argument,
                      ": the name of an adapter consists of letters, digits, '.', "
                      "'_' and '-'");
    for (const NamedFolder& other : folders.named)
      if (other.name == name)
        problems += str("\n  --adapter ", argument, ": ", name, " is the name of ", other.path, " already");
    folders.named.push_back({name, path});
  }
  if (problems.empty()) return folders;
  return Status::error(Code::invalid, str("adapters:", problems));
}

Result<std::unique_ptr<RowAdapters>> RowAdapters::open(Io& io, const std::vector<NamedFolder>& folders,
                                                       const std::string& default_adapter,
                                                       const DecoderConfig& config) {
  std::unique_ptr<RowAdapters> adapters(new RowAdapters);
  std::string problems;
  Code code = Code::invalid;
  for (const NamedFolder& named : folders) {
    auto folder = open_lora(io, named.path, config);
    if (!folder.has_value()) {
      if (problems.empty()) code = folder.status().code();
      problems += str("\nadapter ", named.name, ": ", folder.status().message());
      continue;
    }
    adapters->adapters_.push_back({named.name, *std::move(folder)});
  }
  if (!problems.empty()) return Status::error(code, str("adapters cannot be loaded:", problems));
  if (folders.size() == 1) adapters->default_ = 0;
  if (!default_adapter.empty()) {
    auto chosen = adapters->choose(default_adapter);
    if (!chosen.has_value()) return chosen.status().annotate("--default-adapter");
    adapters->default_ = *chosen;
  }
  return adapters;
}

std::int32_t RowAdapters::find(std::string_view name) const noexcept {
  const auto found = std::find_if(adapters_.begin(), adapters_.end(),
                                  [&](const Adapter& adapter) { return adapter.name == name; });
  return found == adapters_.end() ? -1 : static_cast<std::int32_t>(found - adapters_.begin());
}

Result<std::int32_t> RowAdapters::choose(const std::optional<std::string>& name) const {
  if (!name) return default_;
  if (name->empty()) return -1;
  if (const std::int32_t found = find(*name); found >= 0) return found;
  std::vector<std::string_view> known;
  for (const Adapter& adapter : adapters_) known.push_back(adapter.name);
  std::string list;
  for (const std::string_view each : known) list += str(list.empty() ? "" : ", ", each);
  return Status::error(Code::invalid, str("no adapter is named '", *name, "'; the adapters are ", list,
                                          did_you_mean(*name, known)));
}

std::string_view RowAdapters::name(std::int32_t adapter) const noexcept {
  return adapter < 0 ? std::string_view() : adapters_[static_cast<std::size_t>(adapter)].name;
}

std::vector<NamedLora> RowAdapters::loras() const {
  std::vector<NamedLora> loras;
  for (const Adapter& adapter : adapters_)
    loras.push_back({adapter.name, lora_groups(adapter.folder->targets())});
  return loras;
}

Result<bool> RowAdapters::read(const StatePiece& piece, std::span<float> values) const {
  const std::size_t mark = piece.name.rfind(kAdapterMark);
  if (mark == std::string_view::npos) return false;
  const std::int32_t adapter = find(piece.name.substr(mark + 1));
  if (adapter < 0) return false;
  const PeftFolder& folder = *adapters_[static_cast<std::size_t>(adapter)].folder;
  STRATA_TRY(folder.read_part(piece.name.substr(0, mark), piece.offset, values));
  return true;
}

}  // namespace strata
