#include <strata/model/hf/explain_folder.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <strata/runtime/str.h>

#include <strata/runtime/config/strict_json.h>

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

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// Says what to name instead of an adapter's folder.
std::string adapter_remedy(Io& io, const std::string& path, const std::string& named) {
  const std::string base = without_slashes(named);
  const bool is_here = !base.empty() && io.exists(base + "/config.json");
  const std::string folder = is_here ? base : base.empty() ? "BASE" : base.substr(base.rfind('/') + 1);
  return str(" is a PEFT adapter", base.empty() ? "" : " of ", base,
             ", which has no weights of its own; name its base, and the adapter beside it: ", folder,
             " --adapter ", path,
             is_here        ? ""
             : base.empty() ? ", where BASE is the folder of the model that it was trained on"
                            : str(", where ", folder, " is the folder to which you have downloaded ", base));
}

// Whether the Hugging Face Hub could have a model of this name: OWNER/NAME. What begins with a folder that is
// here is a mistyped path.
bool may_be_on_the_hub(Io& io, std::string_view path) {
  const auto is_part = [](std::string_view part) {
    return !part.empty() && part.front() != '.' &&
           part.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
               std::string_view::npos;
  };
  const std::size_t slash = path.find('/');
  return slash != std::string_view::npos && is_part(path.substr(0, slash)) &&
         is_part(path.substr(slash + 1)) && !io.exists(std::string(path.substr(0, slash)));
}

// Programs that load by such a name fetch what it stands for; this one reads folders and files alone.
Status not_downloaded(const std::string& path, const char* what, const char* option) {
  return Status::error(Code::not_found,
                       str(path, " does not exist here; ", what,
                           " of this name on the Hugging Face Hub is downloaded by: hf download ", path,
                           option, " --local-dir ", path, " (pip install huggingface_hub)"));
}

}  // namespace

Status explain_missing_data(Io& io, const std::string& path) {
  const bool has_extension = path.find('.', path.rfind('/') + 1) != std::string::npos;
  if (has_extension || io.exists(path) || !may_be_on_the_hub(io, path)) return {};
  return not_downloaded(path, "a data set", " --repo-type dataset");
}

Status explain_hf_folder(Io& io, const std::string& given) {
  const std::string path = without_slashes(given);
  if (!io.exists(path) && may_be_on_the_hub(io, path)) return not_downloaded(path, "a model", "");
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
  const auto gguf = first_of([](const std::string& name) { return name.ends_with(".gguf"); });
  if (!gguf.empty()) return refuse(str(" has GGUF files: name one of them, ", path, "/", gguf));
  const auto other = first_of([](const std::string& name) {
    return name == "tf_model.h5" || name == "flax_model.msgpack" || name.starts_with("consolidated.");
  });
  if (!other.empty())
    return refuse(str(" holds its weights in ", other, "; model.safetensors, or its shards, can be read"));
  return {};
}

}  // namespace strata
