#include <strata/model/hf/explain_folder.h>

#include <algorithm>
#include <cstdint>

#include <strata/runtime/str.h>

#include "text/strict_json.h"

namespace strata {
namespace {

constexpr std::uint64_t kAdapterLimit = 16 << 20;

/// base_model_name_or_path of a PEFT folder; empty if its configuration does not name it.
std::string base_of(Io& io, const std::string& adapter_config) {
  const auto text = read_text(io, adapter_config, kAdapterLimit);
  if (!text.has_value()) return {};
  const auto root = detail::parse_strict_json(*text);
  if (!root.has_value() || !root->is_object()) return {};
  const auto base = root->find("base_model_name_or_path");
  return base != root->end() && base->is_string() ? base->get<std::string>() : std::string();
}

/// What to name instead of an adapter's folder.
std::string adapter_remedy(Io& io, const std::string& path, const std::string& base) {
  const bool is_here = !base.empty() && io.exists(base + "/config.json");
  const std::string folder = is_here ? base : base.empty() ? "BASE" : base.substr(base.rfind('/') + 1);
  return str(" is a PEFT adapter", base.empty() ? "" : " of ", base,
             ", which has no weights of its own; name its base, and the adapter beside it: ", folder,
             " --adapter ", path,
             is_here        ? ""
             : base.empty() ? ", where BASE is the folder of the model that it was trained on"
                            : str(", where ", folder, " is the folder to which you have downloaded ", base));
}

}  // namespace

Status explain_hf_folder(Io& io, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return Status::error(Code::unsupported, str(path, why));
  };
  if (const std::string config = path + "/adapter_config.json"; io.exists(config))
    return refuse(adapter_remedy(io, path, base_of(io, config)));
  const auto names = io.list(path);
  if (!names.has_value()) return {};  // reading the folder reports the error
  const auto first_of = [&](const auto& matches) {
    const auto at = std::find_if(names->begin(), names->end(), matches);
    return at == names->end() ? std::string() : *at;
  };
  const auto pickled = first_of([](const std::string& name) {
    return name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".bin.index.json"));
  });
  if (!pickled.empty())
    return refuse(str(" holds its weights in ", pickled,
                      ", a pickle, which may run code when it is read and is not read here: write "
                      "model.safetensors instead (AutoModelForCausalLM.from_pretrained('",
                      path, "').save_pretrained('DIR'))"));
  const auto other = first_of([](const std::string& name) {
    return name.ends_with(".gguf") || name == "tf_model.h5" || name == "flax_model.msgpack" ||
           name.starts_with("consolidated.");
  });
  if (!other.empty())
    return refuse(str(" holds its weights in ", other, "; model.safetensors, or its shards, can be read"));
  return {};
}

}  // namespace strata
