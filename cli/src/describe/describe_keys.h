#pragma once

#include <string>

#include <strata/runtime/config/config_schema.h>
#include <strata/runtime/status.h>

namespace strata::cli {

/// All that is known of a key: what it does, what it accepts, its default, its variable and an example.
/// Errors: `invalid` for an unknown key, with the most similar one. Of a section ("memory"): all its keys.
Result<std::string> explain_key(const ConfigSchema& schema, const std::string& name);
/// A JSON schema (draft 2020-12) of configuration files, for editors.
std::string config_json_schema(const ConfigSchema& schema);
/// All keys as Markdown, a table for each section.
std::string key_reference(const ConfigSchema& schema);

}  // namespace strata::cli
