#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <strata/graph/program.h>

namespace strata {

/// Runs `program`, which has no backward, once with everything resident, and returns its outputs; of an i32
/// output these are the bits. For packed rows, which Engine::infer does not support, and for outputs that it
/// does not return. `param` fills a parameter by its name, `input` an i32 input.
std::map<std::string, std::vector<float>, std::less<>> forward_once(
    const Program& program, const std::function<Status(std::string_view, std::span<float>)>& param,
    const std::function<std::vector<std::int32_t>(const std::string&)>& input);

}  // namespace strata
