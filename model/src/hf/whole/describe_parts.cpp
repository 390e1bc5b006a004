#include <strata/model/hf/other_parts.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

/// A name as "model.layers.", "61." and "mlp.gate.weight", or with nothing but the first part.
struct NameParts {
  std::string_view stem, layer = {}, rest = {};
};

NameParts parts_of(std::string_view name) {
  for (const std::string_view stem :
       {"model.layers.", "language_model.model.layers.", "language_model.model.blocks."}) {
    if (!name.starts_with(stem)) continue;
    const std::size_t end = name.find('.', stem.size());
    if (end == std::string_view::npos) break;
    return {name.substr(0, stem.size()), name.substr(stem.size(), end + 1 - stem.size()),
            name.substr(end + 1)};
  }
  const std::size_t end = name.find('.', name.starts_with("model.") ? 6 : 0);
  return {end == std::string_view::npos ? name : name.substr(0, end + 1)};
}

/// What both begin with, up to a dot.
std::string_view common_beginning(std::string_view a, std::string_view b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const std::string_view same = a.substr(0, static_cast<std::size_t>(differ.first - a.begin()));
  const std::size_t dot = same.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : same.substr(0, dot + 1);
}

/// What the names of a layer's tensors begin with behind the layer.
using Layers = std::map<std::string_view, std::string_view>;

/// "model.layers.*.self_attn.indexer." if layers have the same part, else "model.layers.61." for each.
std::vector<std::string> beginnings_of(std::string_view stem, const Layers& layers) {
  std::map<std::string_view, std::vector<std::string_view>> layers_with;
  for (const auto& [layer, rest] : layers) layers_with[rest].push_back(layer);
  std::vector<std::string> found;
  for (const auto& [rest, of] : layers_with) {
    if (of.size() > 1 && !rest.empty()) {
      found.push_back(str(stem, "*.", rest));
      continue;
    }
    for (const std::string_view layer : of) found.push_back(str(stem, layer, rest));
  }
  return found;
}

std::vector<std::string> beginnings_of(const OtherParts& parts) {
  std::vector<std::string> found;
  std::map<std::string_view, Layers> layers;
  for (const OtherTensor& tensor : parts.tensors) {
    const auto [stem, layer, rest] = parts_of(tensor.name);
    if (layer.empty()) {
      found.emplace_back(stem);
      continue;
    }
    const auto [at, is_new] = layers[stem].try_emplace(layer, rest.substr(0, rest.rfind('.') + 1));
    if (!is_new) at->second = common_beginning(at->second, rest);
  }
  for (const auto& [stem, of] : layers)
    for (std::string& beginning : beginnings_of(stem, of)) found.push_back(std::move(beginning));
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace

std::string describe(const OtherParts& parts) {
  const std::vector<std::string> beginnings = beginnings_of(parts);
  std::string text = str(parts.tensors.size(), parts.tensors.size() == 1 ? " tensor" : " tensors", " (",
                         format_bytes(parts.tensor_bytes()), ")");
  for (std::size_t i = 0; i < beginnings.size(); ++i)
    text += str(i == 0 && parts.tensors.size() == 1 ? ", whose name begins with "
                : i == 0                            ? ", whose names begin with "
                : i + 1 == beginnings.size()        ? " and "
                                                    : ", ",
                beginnings[i]);
  return text;
}

std::string left_alone_note(Io& io, const std::string& folder) {
  if (folder.empty()) return {};
  const auto parts = other_parts_of(io, folder);
  if (!parts.has_value() || !*parts || (*parts)->tensors.empty()) return {};
  return str("the text model of ", folder, " is used; ", describe(**parts),
             (*parts)->tensors.size() == 1 ? ", is left alone" : ", are left alone");
}

}  // namespace strata
